"""`mix`: rows of several models combined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Logits, Path, Scope, Tree
from specplan.ir.needs import Work
from specplan.ir.op import Op, Step
from specplan.ir.plan import Plan
from specplan.ir.types.context import Context
from specplan.ir.types.value_types import ROOT, LogitsType, NumberType, TreeType
from specplan.ir.values import Entry, Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Mix(Op):
    """Rows of several models on the same nodes, combined by a law, before sampling settings.

    A tree stands for the rows that its children were grown from. `weights` are numbers per request,
    one for each operand; laws that take none combine all alike.

    %m = mix %l %c law=contrastive(beta=0.5, alpha=0.1)
    %m = mix %l %k law=average weights=[%p, %w]
    """

    keyword = "mix"
    renamed = (("rows", "logits"),)
    gone = (("over", "the tree is an operand: mix %logits %tree"),)
    positional = ("logits",)
    entries = (("law", "law"),)
    logits: tuple[Value, ...]
    law: Entry
    weights: tuple[Value, ...] = ()

    def infer(self, context: Context) -> tuple[LogitsType]:
        """Rows of the first operand's nodes; those of whole models where all operands are."""
        if len(self.logits) < 2:
            raise RuleError("arity", "mix combines the rows of two models or more")
        if self.weights and len(self.weights) != len(self.logits):
            counts = f"{len(self.weights)} weights for {len(self.logits)} operands"
            raise RuleError("arity", counts)
        for name in self.weights:
            context.expect(name, NumberType, "weights")
        first = context.expect(self.logits[0], LogitsType, "mix")
        exact, root = first.exact, first.root
        for name in self.logits[1:]:
            other = context.look(name, "mix")
            if not isinstance(other, LogitsType | TreeType):
                raise RuleError("type", f"mix: %{name} is neither rows nor a tree")
            if first.lineage is None or not first.lineage.related(other.lineage):
                both = f"rows %{self.logits[0]} and %{name} belong to different trees"
                raise RuleError("lineage", both)
            rooted = other.root_logits if isinstance(other, TreeType) else other.root
            root = root and rooted
            if isinstance(other, TreeType) and not rooted and ROOT in (first.indices or ()):
                nothing = f"nothing was grown below the root of %{name}: it stands for no row there"
                raise RuleError("lineage", nothing)
            exact = exact and (other.whole if isinstance(other, TreeType) else other.exact)
        return (replace(first, exact=exact, bounded=False, model="", levels=1, root=root),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """Rows over the vocabulary."""
        (mixed,) = step.gives
        assert isinstance(mixed, LogitsType)
        return Work(f"{self.keyword}:{self.law.name}", max(1, mixed.width))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Where all have logits for a node."""
        first, *others = (scope[name] for name in self.logits)
        weights = [float(scope[name]) for name in self.weights]
        mixed: dict[Path, Any] = {}
        for path, levels in first.of.items():
            rows = [levels[0], *(_row_of(other, path) for other in others)]
            if all(row is not None for row in rows):
                mixed[path] = (world.mixed(self.law, rows, weights),)
        return (Logits(mixed),)


def _row_of(value: Logits | Tree, path: Path) -> Any:
    """Logits of a node; of a tree, those that its children were grown from."""
    if isinstance(value, Logits):
        return value.row(path)
    for number in value.numbers:
        if value.path(number) == path:
            rows = [value.nodes[i].logits for i in value.children(number)]
            return next((row for row in rows if row is not None), value.attached.get(number))
    return None


OP = Mix
