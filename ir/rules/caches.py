"""Rules about caches: a forward finds what it attends to, and the next round can catch up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from specplan.ir.ops import Accept, Commit, Emit, Forward, Grow, Op, Prune
from specplan.ir.plan import CacheState, Plan
from specplan.ir.types.infer import RoundTypes, Step
from specplan.ir.types.residency import MOST_TREES, CacheRuns, Layers, covers, operands_of
from specplan.ir.types.value_types import ROOT, Lineage, LogitsType, TreeType, Type
from specplan.ir.values import State

Finding = tuple[Op | None, str]


def resident(types: RoundTypes) -> Iterator[Finding]:
    """Everything that a forward attends to is in its cache, or is computed by the same forward.

    The first forward on a cache, or on some of its layers, declares how much text it may catch up
    (`pending=`). A drafted node runs after its drafted ancestors or together with them. A forward
    with `write=exact` attends to no node that was written as scratch.
    """
    caches: defaultdict[State, CacheRuns] = defaultdict(CacheRuns)
    for step in types.steps:
        op = step.op
        if not isinstance(op, Forward) or op.cache is None:
            continue
        runs = caches[op.cache]
        if runs.crowded:
            yield (
                op,
                f"forwards on @{op.cache} run over {MOST_TREES} unrelated trees; use two caches",
            )
            return
        if op.pending == 0 and not runs.caught_up(op.layers):
            yield op, f"no forward has caught @{op.cache} up with the text; give pending="
        for node, parent in _orphans(runs, step, op):
            what = f"node {node} attends to its parent, node {parent}, which is not in @{op.cache}"
            yield op, f"{what}; run the parent before or together with it"
        runs.add(step, op)


def _orphans(runs: CacheRuns, step: Step, op: Forward) -> Iterator[tuple[int, int]]:
    """The first node of each operand whose parent was not run, and that parent."""
    for lineage, given in operands_of(step, op):
        present = runs.present(
            lineage, op.layers, exact=op.write == "exact", conditional=step.conditional
        )
        if given is None or present is None or lineage.parents is None:
            continue
        nodes = set(given)
        for node in sorted(nodes - {ROOT}):
            parent = lineage.parents[node]
            if parent != ROOT and parent not in nodes and parent not in present:
                yield node, parent
                break


def starvation(plan: Plan, types: RoundTypes) -> Iterator[Finding]:
    """`pending=` covers all text that a round may leave out of a cache that it commits."""
    for passes, bound in left_behind(plan, types):
        most, cache = max(op.pending for op in passes), passes[0].cache
        if (bound or 1) > most > 0:  # residency speaks of none at all
            what = f"after a round @{cache} may lack {bound} tokens of text; give pending={bound}"
            yield passes[0], what


def left_behind(plan: Plan, types: RoundTypes) -> Iterator[tuple[list[Forward], int | None]]:
    """Most tokens of text, the new root included, that a round may leave out of committed caches.

    Yields:
        The forwards with `write=exact` on the same layers of a cache, and how many tokens they
        leave out at most; None where data decides.
    """
    accepts = {step.op.results: step for step in types.steps if isinstance(step.op, Accept)}
    emits = {step.op.results: step.op for step in types.steps if isinstance(step.op, Emit)}
    for step in types.steps:
        commit = step.op
        if not isinstance(commit, Commit) or not isinstance(plan.state(commit.state), CacheState):
            continue
        emit = emits.get((commit.path,))
        judged = accepts.get((emit.path,)) if emit is not None else None
        if judged is not None:
            yield from _left_behind(plan, types, commit, judged)


def _left_behind(
    plan: Plan, types: RoundTypes, commit: Commit, judged: Step
) -> Iterator[tuple[list[Forward], int | None]]:
    forwards = [
        (step, step.op)
        for step in types.steps
        if isinstance(step.op, Forward) and step.op.cache == commit.state
    ]
    runs = CacheRuns()
    for step, op in forwards:
        runs.add(step, op)
        if runs.crowded:
            return
    for layers in dict.fromkeys(op.layers for _, op in forwards if op.write == "exact"):
        ops = [op for _, op in forwards if op.layers == layers and op.write == "exact"]
        bound = _most_behind(runs, layers, commit, judged)
        state, tree = plan.state(commit.state), judged.reads[judged.op.judges or commit.path]
        if isinstance(state, CacheState) and state.rollback == "replay":
            bound = 1 + (tree.depth if isinstance(tree, TreeType) else 0)  # drafted nodes all go
        if bound is None and _runs_inner_nodes(runs, types, layers, commit, judged):
            bound = 2
        yield ops, bound


def _most_behind(runs: CacheRuns, layers: Layers, commit: Commit, judged: Step) -> int | None:
    """Most emitted tokens that a cache lacks; None where static shapes do not determine it."""
    accept = judged.op
    assert isinstance(accept, Accept)
    tree = judged.reads[accept.tree]
    logits = None if accept.target is None else judged.reads[accept.target]
    if not isinstance(tree, TreeType) or tree.lineage is None or accept.at is not None:
        return None
    if runs.only_text():
        return tree.depth + 1
    present = runs.present(tree.lineage, layers, exact=True)
    if present is not None and len(present) == tree.nodes:
        return 1
    if tree.parents is None or present is None or runs.serves_other_trees(tree.lineage):
        return None
    indices = logits.indices if isinstance(logits, LogitsType) else None
    judging = set(range(ROOT, tree.nodes)) if indices is None else set(indices)
    behind, most = {ROOT: 0}, 1
    for node, parent in enumerate(tree.parents):
        if parent in behind and parent in judging:  # a node without logits ends its path
            behind[node] = 0 if node in present else behind[parent] + 1
            most = max(most, behind[node] + (node in judging))
    return most


def _runs_inner_nodes(
    runs: CacheRuns, types: RoundTypes, layers: Layers, commit: Commit, judged: Step
) -> bool:
    """Whether a cache holds every node with children of a tree whose shape data decides.

    Example: a draft model expands the nodes that it ran, and the best of all nodes are judged. The
    last node of an accepted path may then be one that the draft model never ran.
    """
    assert isinstance(judged.op, Accept)
    lineage = _lineage(judged.reads[judged.op.tree])
    if lineage is None or lineage.parents is not None:
        return False
    ran = [
        step.reads[name]
        for step in types.steps
        if isinstance(step.op, Forward) and step.op.cache == commit.state
        if step.op.write == "exact" and covers(step.op.layers, layers)
        for name in step.op.nodes
    ]
    if any(_lineage(type_) is lineage for type_ in ran):
        return False
    for step in reversed(types.steps):  # from a pruned tree to the tree that it was pruned from
        if isinstance(step.op, Prune) and _lineage(step.gives[0]) is lineage:
            lineage = _lineage(step.reads[step.op.tree]) or lineage
    present = runs.present(lineage, layers, exact=True)
    if present is not None and len(present) == lineage.nodes:
        return False
    grown = [
        step.reads[step.op.at]
        for step in types.steps
        if isinstance(step.op, Grow) and (above := _lineage(step.gives[0])) is not None
        if lineage.extends(above)
    ]
    return bool(grown) and all(any(at is type_ for type_ in ran) for at in grown)


def _lineage(type_: Type) -> Lineage | None:
    return type_.lineage if isinstance(type_, TreeType) else None
