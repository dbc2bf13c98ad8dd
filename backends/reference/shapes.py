"""Shapes of trees that the reference backend does not run, found before it runs; no torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from specplan.backends.reference.carried_shapes import carried_reason, conditions, joined_reason
from specplan.backends.reference.chain_shapes import ChainStages
from specplan.backends.reference.drawn_siblings import DrawnSiblings
from specplan.backends.reference.node_runs import NodeRuns
from specplan.backends.reference.source_shapes import lookup_reason, update_reason
from specplan.backends.reference.stop_shapes import EndedLoops
from specplan.backends.reference.tip_shapes import CarriedTips
from specplan.ir.capabilities import Refusal
from specplan.ir.infer import Step, infer_round
from specplan.ir.ops import (
    Accept,
    Adopt,
    Commit,
    Forward,
    Graft,
    Grow,
    Load,
    Lookup,
    Pick,
    Place,
    Prune,
    Update,
)
from specplan.ir.plan import Plan, TrackState
from specplan.ir.printer import print_op
from specplan.ir.scope import nodes_of
from specplan.ir.tree_types import child_counts
from specplan.ir.types import ROOT, Lineage, LogitsType, NodesType, TreeType
from specplan.ir.values import State

_ON_NODES = (Accept, Commit, Forward, Grow, Lookup, Pick, Prune, Update)
UNKNOWN = "its nodes are not known before it runs"


def shape_refusals(plan: Plan) -> Iterator[Refusal]:
    """Ops of a verified plan whose trees or rows the interpreter cannot hold.

    It numbers the nodes of a round once, runs each in a layer of a cache once as scratch and then
    once for good, looks text up below the root only, reads one row for every node, chooses by the
    scores of ranked nodes only, and keeps hidden states where a pass ends.
    """
    for item in plan.rounds:
        walk, types = _Walk(plan), infer_round(plan, item)
        ended = EndedLoops(item, types)
        joined = ((op, joined_reason(op, types)) for op in conditions(item))
        for op, reason in (*ended.reasons(), *joined):
            if reason is not None:
                yield Refusal("reference", print_op(op).splitlines()[0].removesuffix(" {"), reason)
        for step in types.steps:
            reason = carried_reason(plan, step) or ended.reason(step) or walk.reason(step)
            if reason is not None:
                yield Refusal("reference", print_op(step.op), reason)


class _Walk:
    """What a round has drafted and run so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.families: list[Lineage] = []
        """Of unrelated trees the latest of each, in the order in which they are first read."""
        self.runs = NodeRuns()
        self.rows: dict[int, NodesType] = {}
        """By the identity of rows whose nodes data chooses, those nodes."""
        self.kept: defaultdict[State, set[int]] = defaultdict(set)
        self.drawn = DrawnSiblings()
        self.joined: Lineage | None = None
        self.certain: set[Lineage] = set()
        """Trees that were looked up below the root."""
        self.unscored = False
        """Some of the trees that were joined have no scores."""
        self.chains = ChainStages()
        self.tips = CarriedTips()

    def reason(self, step: Step) -> str | None:
        """Why the step cannot run, or None; goes on with the step."""
        if isinstance(step.op, _ON_NODES):
            for held in step.reads.values():
                lineage = held.lineage if isinstance(held, TreeType | NodesType) else None
                if lineage is not None and self._follow(lineage) is None:
                    return "drafted trees must extend one another"
        match step.op:
            case Load():
                return self.drawn.loaded(step.gives[0])
            case Graft() as op:
                return self._graft(op, step)
            case (Grow() | Lookup() | Place()) as op if self._is_joined(step.reads[op.tree]):
                return "a tree that was joined does not grow"
            case Lookup() as op:
                return self._lookup(op, step)
            case Update() as op:
                return update_reason(self.plan, op, step)
            case Grow() as op:
                return self._grow(op, step)
            case Pick(at=at) as op if at is not None or op.of == "from":
                return self.chains.below(op, step)
            case Pick() as op:
                return self._pick(op, step)
            case Adopt() as op:
                return self._adopt(op, step)
            case Accept(at=at) as op if at is not None:
                return self.chains.accept(op, step)
            case Prune() as op:
                return self._prune(op, step)
            case Forward() as op:
                return self._forward(op, step)
            case Accept(tree=tree) as op if self.tips.grown(step.reads[tree]) is not None:
                return self.tips.accept(op, step)
            case Accept(target=target, tree=tree) if target is not None:
                return self._rows_for(step.reads[target], nodes_of(step.reads, tree, "accept"))
        return None

    def _follow(self, lineage: Lineage) -> int | None:
        """The number of a tree's family; None where another tree of it has other nodes."""
        for number, known in enumerate(self.families):
            if lineage.ancestor(0) is known.ancestor(0):
                if lineage.extends(known):
                    self.families[number] = lineage
                return number if lineage.related(known) else None
        self.families.append(lineage)
        return len(self.families) - 1

    def _numbered(self, nodes: NodesType) -> NodesType:
        """Nodes by numbers that no other tree of the round has; those of the first as they are."""
        family = None if nodes.lineage is None else self._follow(nodes.lineage)
        if not family:
            return nodes
        first = family << 12

        def moved(indices: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return indices and tuple(i if i == ROOT else i + first for i in indices)

        return replace(nodes, indices=moved(nodes.indices), among=moved(nodes.among))

    def _grow(self, op: Grow, step: Step) -> str | None:
        tree, at = step.reads[op.tree], nodes_of(step.reads, op.at, "at")
        if self.chains.holds(tree):
            return self.chains.grow(op, step)
        tip = self.tips.is_tip(at)
        if tip:
            reason = self.tips.grow(op, step)
            if reason is not None:
                return reason
            at = self.tips.known_above(at)
        if isinstance(tree, TreeType) and "given" in tree.laws:
            if tree.parents is None and self.tips.grown(tree) is None:
                return "a tree that was merged from what was looked up does not grow"
            if op.how != "best":
                return "below nodes that were looked up, or carried on, children are ranked"
        if self.runs.pruned:
            return "a tree that was pruned does not grow"
        if op.how != "best":
            counts = child_counts(op.children, at)
            if at.indices is None and not tip:
                return "children of nodes that scores choose are ranked, not drawn"
            family = (self._follow(at.lineage) or 0) if at.lineage else 0
            parents = {(family, node) for node in at.indices or at.among or ()}
            reason = self.drawn.grown(op.how, counts, parents)
            if reason is not None:
                return reason
        (grown,) = step.gives
        if isinstance(tree, TreeType) and isinstance(grown, TreeType):
            first = (self._follow(grown.lineage) or 0) << 12 if grown.lineage else 0
            new = range(first + tree.nodes, first + grown.nodes)
            self.runs.grow(new, self._numbered(at))
        return self._rows_for(step.reads[op.logits], at)

    def _graft(self, op: Graft, step: Step) -> str | None:
        trees = [held for name in op.trees if isinstance(held := step.reads[name], TreeType)]
        if any(tree.parents is None or self.chains.holds(tree) for tree in trees):
            return "trees that are joined have one shape for all requests"
        families = [self._follow(tree.lineage) for tree in trees if tree.lineage is not None]
        if len(set(families)) < len(trees) or None in families:
            return "trees that are joined begin at a root each"
        if self.runs.pruned or any(self._is_joined(tree) for tree in trees):
            return "trees are joined once, before any is pruned"
        (joined,) = step.gives
        assert isinstance(joined, TreeType)
        self.joined = joined.lineage
        self.unscored = not all(map(self._is_scored, trees))
        return None

    def _lookup(self, op: Lookup, step: Step) -> str | None:
        tree, (found,) = step.reads[op.tree], step.gives
        if isinstance(tree, TreeType) and isinstance(found, TreeType) and found.lineage is not None:
            self.certain |= {found.lineage} if not tree.nodes and found.parents else set()
        return lookup_reason(self.plan, op, step, self.chains)

    def _is_scored(self, tree: TreeType) -> bool:
        """Whether all nodes of a tree have path scores."""
        if self._is_joined(tree):
            return not self.unscored
        return tree.laws <= {"best"} or tree.lineage in self.certain

    def _is_joined(self, tree: object) -> bool:
        if not isinstance(tree, TreeType) or tree.lineage is None or self.joined is None:
            return False
        return tree.lineage.extends(self.joined)

    def _pick(self, op: Pick, step: Step) -> str | None:
        tree, (chosen,) = step.reads[op.tree], step.gives
        assert isinstance(tree, TreeType) and isinstance(chosen, NodesType)
        if op.of == "leaves" and chosen.indices is None and not tree.is_chain:
            return "leaves of a tree that branches differ by request"
        if op.of == "leaves":
            self.chains.leaves(tree, chosen)
            self.tips.pick(op, step)
            return None
        if op.best is None or chosen.indices is not None:
            return None
        if not self._is_scored(tree):
            return "only ranked nodes are chosen by their scores"
        return UNKNOWN if chosen.among is None else None

    def _prune(self, op: Prune, step: Step) -> str | None:
        tree, to, (after,) = step.reads[op.tree], nodes_of(step.reads, op.to, "to"), step.gives
        assert isinstance(tree, TreeType) and isinstance(after, TreeType)
        if tree.lineage is not None and after.lineage is not None:
            self.families[self._follow(tree.lineage) or 0] = after.lineage
        if to.indices is not None and len(set(to.indices) - {ROOT}) == tree.nodes:
            return None
        self.runs.prune()
        if not self._is_scored(tree):
            return "only trees of ranked nodes are pruned"
        if to.indices is not None and tree.parents is None:
            return "the nodes that are left of a tree of each request's own shape are the best ones"
        if not to.closed and (to.indices is None or tree.parents is None):
            return "how many ancestors they have is not known before it runs; pick of=all best="
        return None

    def _adopt(self, op: Adopt, step: Step) -> str | None:
        tree, (after,) = step.reads[op.tree], step.gives
        assert isinstance(tree, TreeType) and isinstance(after, TreeType)
        if tree.lineage is not None and after.lineage is not None:
            self.families[self._follow(tree.lineage) or 0] = after.lineage
        return self.chains.adopt(op, step)

    def _forward(self, op: Forward, step: Step) -> str | None:
        first, ran = not self.runs.begun(op), set[int]()
        for index, name in enumerate(op.nodes):
            nodes = nodes_of(step.reads, name, "forward")
            if self.chains.holds(nodes):
                return self.chains.forward(op, step)
            numbered = self._numbered(nodes)
            whole = isinstance(step.reads[name], TreeType)
            reason = self.runs.run(op, numbered, whole=whole)
            if reason is not None:
                return reason
            if nodes.indices is None and len(self.families) > 1:
                return "nodes that scores choose run in rounds of one tree"
            if nodes.indices is None:
                self.rows.update({id(given): nodes for given in step.gives[index : index + 1]})
                return None
            self.chains.note(op, nodes, step.gives[index : index + 1])
            ran |= set(numbered.indices or ())
        if first:  # it catches up the text, the root included
            ran.add(ROOT)
        return self._tracks(op, ran)

    def _tracks(self, op: Forward, nodes: set[int]) -> str | None:
        """Why hidden states cannot be read or kept; notes which nodes' are kept."""
        if (op.features is not None or op.keep is not None) and op.is_reduced(self.plan):
            return "hidden states are kept beside whole caches only"
        if op.features is not None:
            if not op.continues_stack(self.plan):
                return "features may only be the model's own, of the layer that it begins at"
            if not nodes <= self.kept[op.features]:
                return f"no earlier pass of the round keeps all that it reads of @{op.features}"
        track = None if op.keep is None else self.plan.state(op.keep)
        if isinstance(track, TrackState):
            own = track.model == op.model
            if not own or not op.layers or op.layers[0].stop != track.layer:
                return "keep may only name a track of the model's own, of the layer that it ends at"
            self.kept[track.name] |= nodes
        return None

    def _rows_for(self, rows: object, nodes: NodesType) -> str | None:
        if not isinstance(rows, LogitsType):
            return UNKNOWN
        wanted = nodes.among if nodes.indices is None else nodes.indices
        if rows.indices is None:
            return None if self.rows.get(id(rows)) is nodes else UNKNOWN
        if wanted is None:
            return UNKNOWN
        missing = set(wanted) - set(rows.indices)
        return f"node {min(missing)} has no row of its own" if missing else None
