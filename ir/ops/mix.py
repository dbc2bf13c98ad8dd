"""`mix`: combine logits of several models."""

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
    """Combine logits of several models on the same nodes; sampling settings apply afterwards.

    A tree as an operand stands for the logits that its children were grown from. `weights`: one
    number per request for each operand; a law without weights treats all operands alike.

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
        """Logits of the first operand's nodes; exact where all operands are."""
        if len(self.logits) < 2:
            raise RuleError("arity", "mix needs at least two operands")
        if self.weights and len(self.weights) != len(self.logits):
            counts = f"weights= has {len(self.weights)} entries for {len(self.logits)} operands"
            raise RuleError("arity", counts)
        for name in self.weights:
            context.expect(name, NumberType, "weights")
        first = context.expect(self.logits[0], LogitsType, "mix")
        exact, root = first.exact, first.root
        for name in self.logits[1:]:
            other = context.look(name, "mix")
            if not isinstance(other, LogitsType | TreeType):
                raise RuleError("type", f"mix takes logits and trees, and %{name} is neither")
            if first.lineage is None or not first.lineage.related(other.lineage):
                both = f"%{self.logits[0]} and %{name} belong to different trees"
                raise RuleError("lineage", both)
            rooted = other.root_logits if isinstance(other, TreeType) else other.root
            root = root and rooted
            if isinstance(other, TreeType) and not rooted and ROOT in (first.indices or ()):
                nothing = f"%{name} has no logits at the root: nothing was grown there"
                raise RuleError("lineage", nothing)
            exact = exact and (other.whole if isinstance(other, TreeType) else other.exact)
        return (replace(first, exact=exact, bounded=False, model="", levels=1, root=root),)

    def demand(self, step: Step, plan: Plan) -> Work:
        """One vector over the vocabulary per node."""
        (mixed,) = step.gives
        assert isinstance(mixed, LogitsType)
        return Work(f"{self.keyword}:{self.law.name}", max(1, mixed.width))

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Where all have logits for a node."""
        first, *others = (scope[name] for name in self.logits)
        weights = [float(scope[name]) for name in self.weights]
        mixed: dict[Path, Any] = {}
        for path in first.of:
            vectors = [first.own(path), *(_vector_of(other, path) for other in others)]
            if all(vector is not None for vector in vectors):
                mixed[path] = (world.mixed(self.law, vectors, weights),)
        return (Logits(mixed),)


def _vector_of(value: Logits | Tree, path: Path) -> Any:
    """Logits of a node; of a tree, those that its children were grown from."""
    if isinstance(value, Logits):
        return value.own(path)
    for number in value.numbers:
        if value.path(number) == path:
            vectors = [value.nodes[i].logits for i in value.children(number)]
            return next(
                (vector for vector in vectors if vector is not None), value.attached.get(number)
            )
    return None


OP = Mix
