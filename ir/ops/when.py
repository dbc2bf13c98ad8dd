"""`when`: run ops for some requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specplan.ir.errors import RuleError
from specplan.ir.needs import Work
from specplan.ir.op import Op, Region, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context, Place, Scope
from specplan.ir.types.scope import join
from specplan.ir.types.tree_types import identified
from specplan.ir.types.value_types import FlagType, LogitsType, TreeType, Type
from specplan.ir.values import Value
from specplan.ir.world import Batch


@dataclass(frozen=True, kw_only=True)
class When(Op):
    """Run a region for the requests whose flag is true; the others take `otherwise`.

    when %miss {
    %l = when %go otherwise=[%s] {
    """

    keyword = "when"
    gone = (("control", "a backend chooses how"),)
    positional = ("flag",)
    flag: Value
    otherwise: tuple[Value, ...] = ()
    body: Region = field(default_factory=Region)

    def infer(self, context: Context) -> tuple[Type, ...]:
        """The common types of the yielded and the other values."""
        flag, body = context.expect(self.flag, FlagType, "when"), self.body
        if body.until is not None:
            raise RuleError("arity", "until= ends a repeat, not a when")
        if len(self.otherwise) != len(body.yields):
            counts = (
                f"when yields {len(body.yields)} values and otherwise= has {len(self.otherwise)}"
            )
            raise RuleError("arity", counts)
        inner = context.region(body, place=Place(conditional=True))
        joined: list[Type] = []
        for name, other in zip(body.yields, self.otherwise, strict=True):
            entered, spared = inner.look(name, "yield"), context.look(other, "otherwise")
            either = join(entered, spared)
            chose = flag.drawn or _chose_draws(entered, spared, context.scope)
            if isinstance(either, LogitsType) and flag.calibrated:
                sound = any(isinstance(r, LogitsType) and _sound(r) for r in (entered, spared))
                either = replace(either, bounded=sound)
            if isinstance(either, TreeType) and chose:
                either = replace(either, dropped_draws=True)
            joined.append(identified(either))
        return tuple(joined)

    def demand(self, step: Step, plan: Plan) -> Work:
        """Nothing itself; the ops of its region have demands of their own."""
        return Work(self.keyword, 0)

    def run_all(self, scopes: Mapping[int, Scope], batch: Batch) -> None:
        """The region for requests whose flag holds."""
        inner = {request: dict(scope) for request, scope in scopes.items() if scope[self.flag]}
        batch.run(self.body.ops, inner)
        for request, scope in scopes.items():
            names, source = (
                (self.body.yields, inner[request]) if request in inner else (self.otherwise, scope)
            )
            scope.update(zip(self.results, [source[name] for name in names], strict=True))


def _sound(logits: LogitsType) -> bool:
    return logits.exact or logits.bounded


def _chose_draws(entered: Type, spared: Type, scope: Scope) -> bool:
    """Whether one branch drops nodes that were drawn before the flag was computed."""
    for one, other in ((entered, spared), (spared, entered)):
        for tree in scope.values():
            if isinstance(tree, TreeType) and tree.drawn and isinstance(other, TreeType):
                extends = isinstance(one, TreeType) and _extends(one, tree)
                if extends and not _extends(other, tree):
                    return True
    return False


def _extends(tree: TreeType, other: TreeType) -> bool:
    if tree.lineage is None or other.lineage is None:
        return False
    return tree.lineage.extends(other.lineage)


OP = When
