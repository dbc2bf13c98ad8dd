"""The base class of all ops, and one op at its place in a round.

An op is a frozen dataclass in a file of its own (`specplan.ir.ops`), and everything that is known
of it without torch is a method of that class. `results` are the names that it defines;
`positional` lists the fields that are printed before the keywords; every other field is printed
`key=value` unless it has its default.

Shapes: a *tree* has at most N drafted nodes (the root, the last token of the text, is not
counted); *rows* are one vector over the target's vocabulary per node; all values exist once per
request of the batch, with a live mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from specplan.ir.tables.declaration import Table
from specplan.ir.types.value_types import Type
from specplan.ir.values import Entry, Value

if TYPE_CHECKING:
    from specplan.ir.meaning import Scope
    from specplan.ir.needs import Allocation, Demand, Sizes
    from specplan.ir.plan import Plan
    from specplan.ir.tables.builtin import Tables
    from specplan.ir.types.context import Context
    from specplan.ir.world import Batch, World

Problem = tuple[str, str]
"""A broken rule's name, and why."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """Ops in order and what they hand out; `until` ends the enclosing repeat when it holds."""

    ops: tuple[Op, ...] = ()
    yields: tuple[Value, ...] = ()
    until: Value | None = None


@dataclass(frozen=True, kw_only=True)
class Op:
    """An op: the values that it defines, and what is known of it.

    Attributes:
        keyword: by which plan text knows it.
        positional: fields that stand before the keywords.
        rest: the field that takes all keywords, where their names are free.
        touches: per field that names a state, which kinds of state it may be.
        entries: per field that names an entry of an open table, which table.
        writes: fields that name states which the op writes.
        same_as: attributes that are another's where they are left out: the nodes `at` which
            something grows are all of the tree.
        renamed: attributes by their names in earlier versions, which are still read.
        gone: attributes of earlier versions, with what takes their place.
        narrowed: attributes that took more in earlier versions, with what takes its place.
        renumbers: nodes of the tree that it gives have other numbers or tokens than before.
        owns_probs: the tree that it gives holds copies of the laws that its nodes were drawn from.
    """

    keyword: ClassVar[str]
    positional: ClassVar[tuple[str, ...]] = ()
    rest: ClassVar[str | None] = None
    touches: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    entries: ClassVar[tuple[tuple[str, Table], ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    same_as: ClassVar[tuple[tuple[str, str], ...]] = ()
    renamed: ClassVar[tuple[tuple[str, str], ...]] = ()
    gone: ClassVar[tuple[tuple[str, str], ...]] = ()
    narrowed: ClassVar[tuple[tuple[str, str], ...]] = ()
    renumbers: ClassVar[bool] = False
    owns_probs: ClassVar[bool] = False
    results: tuple[Value, ...] = ()

    if TYPE_CHECKING:

        @property
        def body(self) -> Region | None:
            """The region that it holds; None for most ops."""
            return None

        @property
        def carried(self) -> tuple[tuple[Value, Value], ...]:
            """What a region takes in: (parameter, initial) pairs."""
            return ()

    else:
        body = None
        carried = ()

    @property
    def runs(self) -> str | None:
        """The role of the model that it runs; None for an op that runs none."""
        return None

    @property
    def judges(self) -> Value | None:
        """The tree that it judges; None for an op that judges none."""
        return None

    @property
    def judges_by(self) -> Entry | None:
        """The rule by which it judges a tree; None for an op that judges none."""
        return None

    @property
    def draws(self) -> bool:
        """Whether it attaches children that are drawn, with the laws that they are drawn from."""
        return False

    @property
    def finds(self) -> int:
        """Levels of tokens that it finds in a source at once; 0 for an op that looks nothing up."""
        return 0

    @property
    def may_stop(self) -> bool:
        """Whether it is a loop that may end before its last trip."""
        return self.body is not None and self.body.until is not None

    @property
    def trips(self) -> int:
        """Most trips through its region."""
        return 1

    def limited(self, trips: int) -> Op:
        """The same op with so many trips through its region, at most."""
        return self

    def misplaced(self, plan: Plan) -> Iterable[Problem]:
        """Rules that it breaks in this plan, whatever the types of its operands."""
        return ()

    def infer(self, context: Context) -> tuple[Type, ...]:
        """Types of its results.

        Raises:
            RuleError: an operand is missing or of another kind, or does not fit the others.
        """
        raise NotImplementedError

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterable[Problem]:
        """Rules that it breaks by itself, with the types of what it reads and gives."""
        return ()

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """What it means for one request: values of its results, from those in scope."""
        raise NotImplementedError

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """What it means for the requests of a batch, by row; their scopes gain its results."""
        for request, scope in scopes.items():
            world = batch.worlds[request]
            scope.update(zip(self.results, world.filled(self, self.run(scope, world)), strict=True))

    def demand(self, step: Step, plan: Plan) -> Demand:
        """What it asks of a device: by which name that knows it, and how wide it is."""
        raise NotImplementedError

    def bytes(self, step: Step, sizes: Sizes) -> Iterable[Allocation]:
        """Memory that it needs beside what it reads, of all requests.

        Numbers per node and request (tokens, parents, uniforms) are left out: beside one row over
        the vocabulary they are nothing.
        """
        return ()


@dataclass(frozen=True, slots=True)
class Step:
    """One op instance of a round with its loops unrolled.

    `trip` counts trips of all enclosing loops (0 outside), `trips` how many there are;
    `conditional` steps stand in a `when`: `region` is the number of the innermost one, in the order
    of the round's text, None outside.
    """

    op: Op
    reads: dict[Value, Type]
    gives: tuple[Type, ...]
    trip: int
    trips: int
    conditional: bool
    lane: str | None
    region: int | None = None
