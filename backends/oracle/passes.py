"""One forward of one request: which paths run, what enters each layer, and what it sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.oracle.memory import Memory
from specplan.backends.oracle.stacks import Context, Stack
from specplan.ir.blocks import Skips
from specplan.ir.errors import SpecplanError
from specplan.ir.meaning import Logits, Path, Picked
from specplan.ir.ops import Forward
from specplan.ir.plan import CacheState, TrackState

if TYPE_CHECKING:
    from specplan.backends.oracle.world import OneRequest

MOST_CHUNK = 512
"""Text that a small cache reads at once, at most; see docs/plan_language.md."""
_FEATURE = 0
"""The layer by which memories of tracks know their facts."""


@dataclass
class Pass:
    """Computes logits of nodes, and remembers what entered each layer.

    Attributes:
        world: the request.
        op: the forward.
        operands: nodes of trees.
    """

    world: OneRequest
    op: Forward
    operands: Sequence[Picked]
    steps: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world, op = self.world, self.op
        self.stack: Stack = world.stacks[op.model]
        state = None if op.cache is None else world.plan.state(op.cache)
        self.cache = state if isinstance(state, CacheState) else None
        self.memory = Memory() if op.cache is None else world.memory[op.cache]
        track = None if op.features is None else world.plan.state(op.features)
        self.track = track if isinstance(track, TrackState) else None
        spans = [range(span.start, span.stop) for span in op.layers]
        self.layers = [n for span in spans or [range(self.stack.num_layers)] for n in span]
        self.first = spans[0].start if spans else 0
        self.small = self.cache is not None and self.cache.policy is not None

    def run(self) -> tuple[Logits, ...]:
        """Logits per operand and kind of output.

        Text that the cache lacks comes first, whatever `pending=` says of its length: a prompt, or
        what a drafter missed while it was switched off, is read by the same round in a wider form.
        """
        wanted = dict.fromkeys(
            tree.path(number)
            for tree, numbers in ((item.tree, item.numbers) for item in self.operands)
            for number in numbers
            if number in tree.living
        )
        missing = self._missing()
        if self.small:
            missing = self._read_in_chunks(missing)
        elif self.op.write == "scratch" and self.op.features is None:
            missing = self._read_exactly(missing)
        states = self._through(sorted({*missing, *wanted}, key=lambda path: (len(path), path)))
        names = ("logits",) if self.op.gives is None else self.op.gives
        said = {
            name: {
                path: self.stack.logits(states[path], path, name, self.steps.get(path, 0))
                for path in wanted
                if path in states
            }
            for name in names
        }
        return tuple(
            Logits({path: rows[path] for path in self._paths(item) if path in rows})
            for item in self.operands
            for rows in said.values()
        )

    def _paths(self, item: Picked) -> Iterable[Path]:
        return (item.tree.path(i) for i in item.numbers if i in item.tree.living)

    def _missing(self) -> list[Path]:
        """Prefixes of the text that the layers of this pass have not read."""
        if self.op.cache is None:
            return []
        text = self.world.text
        return [text[:n] for n in range(1, len(text) + 1) if not self._resident(text[:n])]

    def _resident(self, path: Path) -> bool:
        if len(path) <= self.memory.forgotten:
            return True
        ends = {self.layers[0], self.layers[-1]} if self.layers else ()
        return all(self.memory.get(n, path, self.op.write) is not None for n in ends)

    def _read_in_chunks(self, missing: list[Path]) -> list[Path]:
        """A small cache reads no more at once than it holds, and forgets in between."""
        assert self.cache is not None
        view = self.cache.view is not None
        chunk = 1 if view else min(MOST_CHUNK, self.cache.budget or MOST_CHUNK)
        most = max(min(self.op.most_pending, chunk + 1), 1)
        if len(self.world.text) == self.world.prompt_length:
            most = 1
        while len(missing) > most and not view:
            size = min(chunk, len(missing) - most)
            self._through(missing[:size])
            missing = missing[size:]
            self.world.forget(self.cache)
        return missing

    def _read_exactly(self, missing: list[Path]) -> list[Path]:
        """Scratch is for drafts: text that no round has read is read by the whole stack first."""
        early = missing[: max(len(missing) - self.op.most_pending, 0)]
        if early:
            whole = Forward(model=self.op.model, nodes=(), cache=self.op.cache)
            Pass(self.world, whole, ())._through(early)
        return missing[len(early) :]

    def _through(self, paths: Sequence[Path]) -> dict[Path, Tensor]:
        """States of paths after the last layer; what lies below a gap is left out."""
        states = self._enter(paths)
        if not states:
            return {}
        skips = Skips.read(self.op.skip) if isinstance(self.op.skip, tuple) else Skips()
        recorded = {self.first: states}
        last = max((*self.layers, self.first - 1)) + 1
        for number in range(self.first, last):
            if number in self.layers:
                for path, state in states.items():
                    self.memory.put(number, path, state, self.op.write)
                if self.op.only is None:
                    states = self._layer(number, states, skips)
            recorded[number + 1] = states
        if self.op.keep is not None:
            self._keep(recorded, states)
        return states

    def _enter(self, paths: Sequence[Path]) -> dict[Path, Tensor]:
        """What enters the first layer, for paths whose feature and ancestors are there."""
        op, entered = self.op, dict[Path, Tensor]()
        own = self.track is not None and self.track.model == op.model
        for path in paths:
            feature, step = self._feature(path[: len(path) - op.shift])
            above_text = len(path) <= op.shift
            if self.track is not None and feature is None and not above_text:
                continue
            if op.cache is not None and self.layers and not self._reaches(path, entered):
                continue
            self.steps[path] = step + 1 if own and feature is not None else 0
            if own and op.shift == 0 and op.layers and feature is not None:
                entered[path] = feature  # it goes on in the middle of its own stack
            else:
                entered[path] = self.stack.enter(path, feature, self.steps[path])
        return entered

    def _feature(self, path: Path) -> tuple[Tensor | None, int]:
        if self.track is None or not path:
            return None, -1
        fact = self.world.memory[self.track.name].get(_FEATURE, path, self.op.write)
        return (None, -1) if fact is None else fact

    def _reaches(self, path: Path, entered: dict[Path, Tensor]) -> bool:
        """Whether every token above is there, as far as the cache is to hold it."""
        if self.op.attend != "ancestors":
            return True
        begun = len(self.world.text)
        for size in range(1, len(path)):
            above = path[:size]
            if above in entered or (self.small and size <= begun):
                continue
            if self.memory.get(self.layers[0], above, self.op.write) is None:
                return False
        return True

    def _layer(self, number: int, states: dict[Path, Tensor], skips: Skips) -> dict[Path, Tensor]:
        """One layer over everything that its running paths may see."""
        paths = list(states)
        seen: dict[Path, Tensor] = {}
        for path in paths:
            for size in range(1, len(path) + 1):
                fact = self.memory.get(number, path[:size], self.op.write)
                fact = states.get(path[:size]) if self.op.cache is None else fact
                if fact is not None:
                    seen[path[:size]] = fact
                elif self.op.cache is not None and not self.small and self.op.attend != "block":
                    raise SpecplanError(
                        f"layer {number} of {self.op.model} lacks the state of text or nodes "
                        f"at position {size - 1}",
                        where=f"plan {self.world.plan.name}",
                        remedy="Run the layers below it first; `specplan lint` checks the plan.",
                    )
        columns = list(seen)
        mask = torch.tensor([[path[: len(one)] == one for one in columns] for path in paths])
        if self.op.attend == "block":
            running = set(paths)
            mask |= torch.tensor([[one in running for one in columns] for _ in paths])
        context = Context(
            columns,
            torch.stack([seen[one] for one in columns]),
            self._by_head(number, columns, mask),
        )
        return dict(zip(paths, self.stack.layer(number, paths, context, skips), strict=True))

    def _by_head(self, number: int, columns: list[Path], mask: Tensor) -> Tensor:
        """The mask `[H, T, U]`: of the text that a view copied, each head holds its own part."""
        heads = self.memory.visible.get(number)
        if heads is None:
            return mask[None]
        masks = []
        for positions in heads:
            visible = set(positions)
            holds = [len(one) > self.memory.upto or len(one) - 1 in visible for one in columns]
            masks.append(mask & torch.tensor(holds))
        return torch.stack(masks)

    def _keep(self, recorded: dict[int, dict[Path, Tensor]], last: dict[Path, Tensor]) -> None:
        """Record hidden states in a track: those that entered its layers, joined."""
        assert self.op.keep is not None
        track = self.world.plan.state(self.op.keep)
        assert isinstance(track, TrackState)
        layers = track.layer if isinstance(track.layer, tuple) else (track.layer,)
        if track.model != self.op.model:  # a head keeps its own last state for its next step
            layers = ("last",)
        memory = self.world.memory[self.op.keep]
        for path in last:
            parts = [
                (recorded.get(n, {}) if isinstance(n, int) else last).get(path) for n in layers
            ]
            there = [part for part in parts if part is not None]
            if len(there) == len(parts):
                fact = torch.cat(there), self.steps.get(path, 0)
                memory.put(_FEATURE, path, fact, self.op.write)
