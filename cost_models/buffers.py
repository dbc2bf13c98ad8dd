"""Buffers that a round makes beside its states: how large, and from when to when they are needed.

A value lives from the op that makes it to the last one that reads it, as the interpreter holds it
(`specplan.ir.lifetimes`). Numbers per node and request (tokens, parents, uniforms) are left out:
beside one row over the vocabulary they are nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from specplan.cost_models.cost import Quantity
from specplan.cost_models.op_sizes import forward_nodes
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.cost_models.workspace import Moment, higher, pass_parts, row_bytes
from specplan.ir.infer import Step
from specplan.ir.ops import Accept, Forward, Grow, Load, Reroot
from specplan.ir.types import Lineage, NodesType, RowsType, TreeType

_DRAWN = frozenset({"draw", "draw_distinct", "shared"})
_LAW_COPIES = 4
"""Scaled scores, probabilities, the one-hot of greedy rows and the law itself, all at once."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are needed for a while.

    A step takes two moments: a pass runs its layers in the first and makes logits in the second.

    Attributes:
        name: what it holds.
        size: bytes, a number or an array [cells].
        first: the moment in which it is made.
        last: the last one in which it is read.
        logits: it is over the vocabulary.
    """

    name: str
    size: Quantity
    first: int
    last: int
    logits: bool = False


def round_buffers(
    steps: Sequence[Step], shapes: Mapping[str, ModelShape], batch: Quantity, slots: Quantity
) -> tuple[Buffer, ...]:
    """All buffers of a round, in the order in which they are made.

    Args:
        steps: of the round, with their static types.
        shapes: by the model's name in the plan.
        batch: requests, a number or an array [cells].
        slots: cache slots per request, a number or an array [cells].
    """
    until = _Lifetimes(steps)
    found: list[Buffer] = []
    for place, step in enumerate(steps):
        match step.op:
            case Forward():
                found += _of_pass(place, step, shapes[step.op.model], batch, slots, until)
            case Grow() if step.op.how in _DRAWN:
                found += _of_draws(place, step, shapes["target"], batch, until)
            case Accept() if step.op.rule.name != "greedy":
                found.append(_of_judging(place, step, shapes["target"], batch))
    return tuple(found)


def highest_moment(buffers: Iterable[Buffer]) -> Moment:
    """What is alive at once, at most."""
    highest, now = Moment(), Moment()
    alive: list[Buffer] = []
    made: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        made.setdefault(buffer.first, []).append(buffer)
    for moment in sorted(made):
        alive = [buffer for buffer in alive if buffer.last >= moment] + made[moment]
        logits = sum(buffer.size for buffer in alive if buffer.logits)
        now = Moment(sum(buffer.size for buffer in alive if not buffer.logits), logits)
        highest = higher(highest, now)
    return highest


def pass_width(step: Step) -> int:
    """Query tokens per sequence of a forward, pending ones included."""
    assert isinstance(step.op, Forward)
    pending = step.op.pending if isinstance(step.op.pending, int) else max(step.op.pending)
    root, drafted = forward_nodes(step)
    first = root or (pending > 0 and step.trip == 0)
    return max(drafted + (max(pending, 1) if first else 0), 1)


class _Lifetimes:
    """The last step that reads each value."""

    def __init__(self, steps: Sequence[Step]) -> None:
        drawn = {
            id(given.lineage)
            for step in steps
            if isinstance(step.op, Grow) and step.op.how in _DRAWN
            for given in step.gives
            if isinstance(given, TreeType)
        }
        self._rows: dict[int, int] = {}
        self._laws: dict[int, int] = {}
        made = {id(given) for step in steps for given in step.gives}
        own = {
            id(given)
            for step in steps
            if isinstance(step.op, Load | Reroot)  # they hold laws of their own
            for given in step.gives
        }
        self._joined = 0  # rows that come out of a region: from which pass is not known
        self._reshaped = 0  # trees made of others: whose laws they hold is not known
        for place, step in enumerate(steps):
            for held in step.reads.values():
                if isinstance(held, RowsType):
                    self._rows[id(held)] = place
                    self._joined = self._joined if id(held) in made else place
                elif isinstance(held, TreeType):
                    grown = next((one for one in _above(held.lineage) if id(one) in drawn), None)
                    if grown is not None:
                        self._laws[id(grown)] = place
                    elif held.drawn and id(held) not in own:
                        self._reshaped = place

    def of_rows(self, place: int, step: Step) -> int:
        """The last step that reads rows of a forward."""
        read = (self._rows.get(id(given), place) for given in step.gives)
        return max([place, self._joined, *read])

    def of_laws(self, place: int, tree: TreeType) -> int:
        """The last step that reads a tree that holds these laws and no later ones."""
        return max(place, self._reshaped, self._laws.get(id(tree.lineage), place))


def _of_pass(
    place: int, step: Step, shape: ModelShape, batch: Quantity, slots: Quantity, until: _Lifetimes
) -> Iterator[Buffer]:
    assert isinstance(step.op, Forward)
    rows = sum(given.width for given in step.gives if isinstance(given, RowsType))
    parts = pass_parts(shape, batch, pass_width(step), slots, rows)
    what = f"%{step.op.results[0]}" if step.op.results else f"{step.op.model}, no logits"
    run, end = 2 * place, 2 * place + 1
    yield Buffer(f"pass of {what}", parts.always, run, end)
    yield Buffer(f"layers of {what}", parts.layers, run, run)
    if rows:
        yield Buffer(f"states for {what}", parts.gathered, end, end)
        yield Buffer(f"{what} before the cast", parts.cast, end, end, logits=True)
        last = 2 * until.of_rows(place, step) + 1
        yield Buffer(f"rows {what}", parts.logits, end, last, logits=True)


def _of_draws(
    place: int, step: Step, target: ModelShape, batch: Quantity, until: _Lifetimes
) -> Iterator[Buffer]:
    """Copies while children are drawn, and the laws of all nodes that have any."""
    assert isinstance(step.op, Grow)
    (grown,) = step.gives
    assert isinstance(grown, TreeType)
    copies = _LAW_COPIES * row_bytes(target, batch, _parents(step.reads[step.op.at]))
    yield replace(_within(place, f"drawing %{step.op.results[0]}", copies), last=2 * place)
    laws = len(set(grown.parents)) if grown.parents is not None else grown.nodes
    size = row_bytes(target, batch, laws)
    last = 2 * until.of_laws(place, grown) + 1
    name = f"laws of %{step.op.results[0]}"
    yield Buffer(name, size, 2 * place + 1, last, logits=True)


def _of_judging(place: int, step: Step, target: ModelShape, batch: Quantity) -> Buffer:
    """Copies of the rows that judge: one more where each request's chain is put in order.

    Of a tree that lacks rows, nodes up to the first without one are judged.
    """
    assert isinstance(step.op, Accept)
    tree = step.reads[step.op.tree]
    rows = None if step.op.target is None else step.reads[step.op.target]
    assert isinstance(tree, TreeType)
    nodes = min(tree.nodes, rows.width) if isinstance(rows, RowsType) else tree.nodes
    copies = _LAW_COPIES + (tree.parents is None and tree.is_chain)
    size = copies * row_bytes(target, batch, nodes + 1)
    return _within(place, f"judging %{step.op.tree}", size)


def _within(place: int, name: str, size: Quantity) -> Buffer:
    return Buffer(name, size, 2 * place, 2 * place + 1, logits=True)


def _above(lineage: Lineage | None) -> Iterator[Lineage]:
    """A tree and those that it extends, the largest first."""
    while lineage is not None:
        yield lineage
        lineage = lineage.above


def _parents(held: object) -> int:
    if isinstance(held, TreeType):
        return held.nodes + 1
    assert isinstance(held, NodesType)
    return held.width
