"""`grow`: add children of nodes, ranked or drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from specplan.ir.errors import RuleError
from specplan.ir.meaning import Logits, Node, Picked, Scope, Tree, counts_of, numbered
from specplan.ir.needs import PROBABILITY_COPIES, Allocation, Sizes, Work
from specplan.ir.op import Op, Problem, Step
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import Tables
from specplan.ir.types.context import Context
from specplan.ir.types.scope import nodes_of
from specplan.ir.types.tree_types import (
    attach,
    check_logits,
    check_nodes,
    child_counts,
    nodes_before,
)
from specplan.ir.types.value_types import RACES, ROOT, LogitsType, NodesType, TreeType, UniformsType
from specplan.ir.values import Value
from specplan.ir.world import World


@dataclass(frozen=True, kw_only=True)
class Grow(Op):
    """Add children of the nodes `at`, ranked or drawn from `logits`.

    `children`: one count for all nodes or one per node; 0 attaches the node's logits alone. `how`:
    `best` takes the most probable tokens, `draw` draws independently, `draw_distinct` without
    replacement, `shared` by an exponential race that the verifier can replay from the same
    uniforms, and `minhash` by such a race of another coupling. `by`: one uniform per draw; for
    races, number d serves all children of nodes at depth d. `keep`: only the best new nodes stay;
    with `draw_distinct` that many whole paths are drawn without replacement. A node without logits
    uses those of its nearest ancestor that has some, of the level that looks that many tokens
    ahead.

    %t1 = grow %t0 at=%t0 logits=%q children=4
    %t1 = grow %t0 at=%f logits=%q how=draw by=%u
    """

    keyword = "grow"
    renamed = (("rows", "logits"),)
    positional = ("tree",)
    same_as = (("at", "tree"),)
    gone = (("law", "combine logits by mix law= and grow by those"),)
    tree: Value
    at: Value
    logits: Value
    children: int | tuple[int, ...] = 1
    how: Literal["best", "draw", "draw_distinct", "shared", "minhash"] = "best"
    by: Value | None = None
    keep: int | None = None

    @property
    def draws(self) -> bool:
        """Whether children are drawn; they then keep the probabilities they were drawn from."""
        return self.how != "best"

    @property
    def races(self) -> bool:
        """Whether children are drawn by a race that a rule can replay."""
        return self.how in RACES

    def infer(self, context: Context) -> tuple[TreeType]:
        """The tree with children below nodes."""
        tree = context.expect(self.tree, TreeType, "grow")
        logits = context.expect(self.logits, LogitsType, "logits")
        if self.by is not None:
            context.expect(self.by, UniformsType, "by")
        at = context.nodes(self.at, "at")
        check_nodes(tree, at, self.at)
        check_logits(tree, logits, self.logits)
        self._check_covered(tree, at, logits)
        counts = child_counts(self.children, at)
        grown = attach(tree, at, counts, 1, self.keep)
        fewer = self.keep is not None and self.keep < sum(counts)
        paths = self.how == "draw_distinct"  # `keep` then is part of the draw
        dropped = tree.dropped_draws or (self.draws and fewer and not paths)
        origins = tree.origins | ({self.how} if sum(counts) else set())
        siblings = tree.siblings | self._siblings(tree, at, counts)
        return (
            replace(
                grown, origins=origins, siblings=siblings, dropped_draws=dropped,
                whole=tree.whole and logits.exact,
                root_logits=tree.root_logits or ROOT in (at.indices or ()),
            ),
        )  # fmt: skip

    def _siblings(self, tree: TreeType, at: NodesType, counts: tuple[int, ...]) -> frozenset[str]:
        """How nodes that now have several children drew them; two draws count as independent."""
        if not self.draws or not any(counts):
            return frozenset()
        if tree.parents is not None and at.indices is not None:
            again = not set(tree.parents).isdisjoint(at.indices)
        else:
            again = at.seen != tree.nodes
        ways = {"draw"} if again and tree.drawn else set[str]()
        if max(counts) > 1:
            ways.add("draw" if self.how == "draw" else "draw_distinct")
        return frozenset(ways)

    def _check_covered(self, tree: TreeType, at: NodesType, logits: LogitsType) -> None:
        """Every node needs logits of its own, or of an ancestor that looks as far ahead."""
        if at.indices is None or logits.indices is None or tree.parents is None:
            return
        covered = set(logits.indices)
        for node in at.indices:
            above, back = node, 0
            while above not in covered:
                if above == ROOT:
                    missing = f"%{self.logits} has no logits for node {node} or its ancestors"
                    raise RuleError("lineage", missing)
                above, back = tree.parents[above], back + 1
            if back >= logits.levels:
                ahead = f"%{self.logits} looks {logits.levels} tokens ahead, not {back + 1}"
                raise RuleError("lineage", ahead)

    def findings(self, step: Step, plan: Plan, tables: Tables) -> Iterator[Problem]:
        """Draws get one uniform per child, shared draws one per level, `best` none."""
        if not self.draws:
            if self.by is not None:
                yield "draws", "how=best draws nothing; leave by= out"
            return
        (grown,) = step.gives
        needed = sum(child_counts(self.children, nodes_of(step.reads, self.at, "at")))
        if self.races and isinstance(grown, TreeType):
            needed = grown.depth  # number d is for all children of nodes at depth d
        numbers = step.reads[self.by] if self.by is not None else None
        if not isinstance(numbers, UniformsType) or numbers.count < needed:
            yield "draws", f"how={self.how} needs by= with {needed} uniforms"

    def demand(self, step: Step, plan: Plan) -> Work:
        """The new nodes."""
        (grown,) = step.gives
        assert isinstance(grown, TreeType)
        return Work(f"{self.keyword}:{self.how}", grown.nodes - nodes_before(step, self.tree))

    def bytes(self, step: Step, sizes: Sizes) -> Iterator[Allocation]:
        """Copies while children are drawn, and the probabilities that they were drawn from."""
        (grown,) = step.gives
        if not self.draws or not isinstance(grown, TreeType):
            return
        name = self.results[0]
        parents = nodes_of(step.reads, self.at, "at").width
        yield Allocation(
            f"drawing %{name}", PROBABILITY_COPIES * sizes.probabilities(parents), last=0
        )
        parents = len(set(grown.parents)) if grown.parents is not None else grown.nodes
        yield Allocation(f"laws of %{name}", sizes.probabilities(parents), first=1, last="probs")

    def run(self, scope: Scope, world: World) -> tuple[Any, ...]:
        """Children of each node; where its logits are missing they are dead."""
        tree, at, logits = scope[self.tree], numbered(scope[self.at]), scope[self.logits]
        numbers = [] if self.by is None else scope[self.by]
        if self.how == "draw_distinct" and self.keep is not None:
            return (self._beam(tree, at, logits, numbers, world),)
        counts, first = counts_of(self.children, len(at.numbers)), 0
        new: list[Node] = []
        attached = dict(tree.attached)
        for number, count in zip(at.numbers, counts, strict=False):
            vector = logits.ahead(tree, number) if number in tree.living else None
            own = numbers[tree.depth(number) :] if self.races else numbers[first : first + count]
            first += count
            if vector is None:
                new += [Node(0, number, live=False)] * count
            elif not count:
                attached[number] = vector
            else:
                tokens = (
                    world.likeliest(vector, count)
                    if self.how == "best"
                    else world.drawn(vector, self.how, count, own)
                )
                new += [
                    Node(
                        token, number, True, world.log_probability(vector, token), self.how, vector
                    )
                    for token in tokens
                ]
        grown = replace(tree.grown(new) if sum(counts) else tree, attached=attached)
        if self.keep is None:
            return (grown,)
        best = grown.ranked([i for i in grown.newest if i in grown.living], self.keep)
        return (replace(tree, attached=attached).grown(grown.nodes[i] for i in best),)

    def _beam(
        self, tree: Tree, at: Picked, logits: Logits, numbers: Sequence[float], world: World
    ) -> Tree:
        """Whole paths drawn without replacement: the best of perturbed log-probabilities.

        Stochastic beam search (Kool et al. 2019, arXiv 1903.06059, algorithm 1).
        """
        counts, first, new = counts_of(self.children, len(at.numbers)), 0, list[Node]()
        for number, count in zip(at.numbers, counts, strict=False):
            vector = logits.ahead(tree, number) if number in tree.living else None
            uniform, first = numbers[first : first + 1], first + count
            if vector is None or not count:
                continue
            line = [tree.nodes[i] for i in tree.ancestors(number)]
            for token, noise in world.perturbed(vector, count, uniform[0], line):
                score = world.log_probability(vector, token)
                new.append(Node(token, number, True, score, self.how, vector, noise))
        best = sorted(new, key=lambda node: -node.noise)[: self.keep]
        place = {number: order for order, number in enumerate(at.numbers)}
        return tree.grown(sorted(best, key=lambda node: (place[node.parent], -node.noise)))


OP = Grow
