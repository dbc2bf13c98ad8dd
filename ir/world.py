"""The state in which the `oracle` backend runs ops: that of one request, and of its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from specplan.ir.meaning import Judged, Logits, Node, Path, Picked, Scope, Tree, Vector
from specplan.ir.values import Entry, State

if TYPE_CHECKING:
    from specplan.ir.plan import Plan


class World(Protocol):
    """One request as ops see it: its text, its states, and arithmetic on logits.

    Attributes:
        plan: what runs.
        text: prompt and output so far.
        begin: the text when the round began.
        values: what value states hold; of a tree, its nodes.
        around: what formulas read beside their operands, by name.
        allowance: text tokens that a forward with `most=` may read.
        trip: number of the trip through all enclosing loops.
        done: whether it wants no more tokens.
        batch: all requests of the batch.
    """

    plan: Plan
    text: Path
    begin: Path
    values: dict[State, Any]
    around: Mapping[str, float]
    allowance: int
    trip: int
    done: bool
    batch: Batch

    def filled(self, op: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Results of an op, whose trees get dead nodes up to the size of their type."""
        ...

    def forward(self, op: Any, operands: Sequence[Picked]) -> tuple[Logits, ...]:
        """Run a model: logits per operand and kind of output."""
        ...

    def need(self, op: Any, operands: Sequence[Picked]) -> tuple[int, int]:
        """Nodes that a forward runs, and text tokens that it lacks beside them."""
        ...

    def perturbed(
        self, logits: Vector, count: int, number: float, line: Sequence[Node]
    ) -> list[tuple[int, float]]:
        """Tokens below a path that is drawn without replacement, best first, with their noise.

        Args:
            logits: of the path's end.
            count: how many tokens.
            number: a uniform one.
            line: the nodes of the path, upwards.
        """
        ...

    def log_probability(self, logits: Vector, token: int) -> float:
        """Of a token, at temperature 1."""
        ...

    def likeliest(self, logits: Vector, count: int) -> list[int]:
        """The best tokens, best first; among equals the lower number."""
        ...

    def drawn(self, logits: Vector, how: str, count: int, numbers: Sequence[float]) -> list[int]:
        """Tokens drawn from the request's distribution, by `grow how=`."""
        ...

    def mixed(self, law: Entry, logits: Sequence[Vector], weights: Sequence[float]) -> Vector:
        """Logits combined by an entry of the laws; without weights all count alike."""
        ...

    def measured(self, kind: Entry, vector: Vector, beside: Vector | None = None) -> float:
        """One number of logits, or of the states of one or two layers."""
        ...

    def uniforms(self, stream: str, key: str, offset: int, count: int) -> list[float]:
        """Numbers of the request's own stream for this round."""
        ...

    def judged(self, op: Any, tree: Tree, start: int, logits: Logits, by: Any) -> Judged:
        """What an acceptance rule takes of the nodes below `start`."""
        ...

    def source_nodes(self, op: Any, path: Path, children: int) -> list[tuple[int, int, bool]]:
        """Continuations of a path: (token, parent among them or -1, live) in order."""
        ...

    def learn(self, source: State, tree: Tree, logits: Logits | None, last: int | None) -> None:
        """Teach a source."""
        ...

    def emit(self, tokens: Path) -> int:
        """Append tokens to the text, up to a stop token or the limit; how many there were."""
        ...

    def commit(self, state: State, alive: Tree | None) -> None:
        """Keep what was emitted, and nodes that live on; forget other drafts."""
        ...

    def refresh(self, state: State) -> None:
        """Rebuild a view of a cache."""
        ...

    def lag(self, state: State, layers: Sequence[int]) -> int:
        """Text tokens that a cache lacks in some of these layers."""
        ...


class Batch(Protocol):
    """Requests in lockstep: each op runs for all of them before the next one does.

    Attributes:
        worlds: by row.
        trips: per loop that may end early, in order, the trips of each row.
    """

    worlds: Sequence[World]
    trips: list[dict[int, int]]

    def run(self, ops: Sequence[Any], scopes: Mapping[int, Scope]) -> None:
        """Run ops for the rows that have a scope, which gains their results."""
        ...
