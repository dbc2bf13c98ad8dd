"""Temporary home of the ops' meanings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp, log1p
from typing import Any

from specplan.ir import ops as ir
from specplan.ir.formula import evaluate
from specplan.ir.meaning import (
    Batch,
    Judged,
    Logits,
    Node,
    Picked,
    Scope,
    Tree,
    World,
    counts_of,
    numbered,
)
from specplan.ir.types import ROOT
from specplan.ir.values import State


def root(op: ir.Root, scope: Scope, world: World) -> tuple[Any, ...]:
    return (Tree(world.text),)


def grow(op: ir.Grow, scope: Scope, world: World) -> tuple[Any, ...]:
    tree, at, logits = scope[op.tree], numbered(scope[op.at]), scope[op.rows]
    numbers = [] if op.by is None else scope[op.by]
    counts, first = counts_of(op.children, len(at.numbers)), 0
    new: list[Node] = []
    attached = dict(tree.attached)
    for number, count in zip(at.numbers, counts, strict=False):
        row = logits.row(tree.path(number)) if number in tree.living else None
        own = numbers[tree.depth(number):] if op.how == "shared" else numbers[first:first + count]
        first += count
        if row is None:
            new += [Node(0, number, live=False)] * count
        elif not count:
            attached[number] = row
        else:
            tokens = (
                world.likeliest(row, count) if op.how == "best"
                else world.drawn(row, op.how, count, own)
            )
            new += [
                Node(token, number, True, world.log_probability(row, token), op.how, row)
                for token in tokens
            ]
    grown = replace(tree.grown(new) if sum(counts) else tree, attached=attached)
    if op.keep is None:
        return (grown,)
    best = grown.ranked([i for i in grown.newest if i in grown.living], op.keep)
    return (replace(tree, attached=attached).grown(grown.nodes[i] for i in best),)


def lookup(op: ir.Lookup, scope: Scope, world: World) -> tuple[Any, ...]:
    tree, at = scope[op.tree], numbered(scope[op.at])
    counts = counts_of(op.children, len(at.numbers))
    most, new = max(counts, default=0), list[Node]()
    for number, count in zip(at.numbers, counts, strict=False):
        first = len(tree.nodes) + len(new)
        size = count * op.length if op.nodes is None else min(op.nodes, count * op.length)
        if number not in tree.living:
            new += [Node(0, number, live=False)] * size
            continue
        for token, parent, live in world.looked_up(op, tree.path(number), most)[:size]:
            new.append(Node(token, number if parent == ROOT else first + parent, live))
    return (tree.grown(new),)


def place(op: ir.Place, scope: Scope, world: World) -> tuple[Any, ...]:
    tree, at = scope[op.tree], numbered(scope[op.at]).numbers
    if op.upto is not None:
        tree = tree.only(tree.live_nodes)
        at = tree.leaves
    new: list[Node] = []
    for number in at:
        count = len(op.tokens) if op.upto is None else max(op.upto - tree.depth(number), 0)
        for step in range(count):
            above = len(tree.nodes) + len(new) - 1 if step else number
            new.append(Node(op.tokens[step % len(op.tokens)], above))
    return (tree.grown(new),)


def relabel(op: ir.Relabel, scope: Scope, world: World) -> tuple[Any, ...]:
    tree = scope[op.tree]
    at = None if op.at is None else set(numbered(scope[op.at]).numbers)
    other = None if op.other is None else scope[op.other]
    logits = None if op.rows is None else scope[op.rows]

    def new(number: int, node: Node) -> Node:
        if at is not None and number not in at:
            return node
        if other is not None:
            source = op.map[number] if op.map else number
            token, live = other.nodes[source].token, source in other.living
            return Node(token, node.parent, live)
        if logits is None:
            return Node(op.token or 0, node.parent, node.live)
        asked = number if op.align == "self" else node.parent
        row = logits.row(tree.path(asked)) if number in tree.living else None
        if row is None:
            return Node(0, node.parent, live=False)
        (token,) = world.likeliest(row, 1)
        return Node(token, node.parent, score=world.log_probability(row, token))

    nodes = tuple(new(number, node) for number, node in enumerate(tree.nodes))
    return (Tree(tree.base, nodes, tuple(range(len(nodes))) or (ROOT,)),)


def graft(op: ir.Graft, scope: Scope, world: World) -> tuple[Any, ...]:
    nodes: list[Node] = []
    attached: dict[int, Any] = {}
    for name in op.trees:
        first, tree = len(nodes), scope[name]
        attached |= {i if i == ROOT else i + first: row for i, row in tree.attached.items()}
        nodes += [
            node if node.parent == ROOT else replace(node, parent=node.parent + first)
            for node in tree.nodes
        ]
    joined = Tree(world.begin, tuple(nodes), tuple(range(len(nodes))) or (ROOT,), attached)
    if op.same == "merge":
        for number in joined.numbers:
            joined = _merged(joined, number)
    return (joined,)


def _merged(tree: Tree, number: int) -> Tree:
    """What hangs below equal children hangs below the first; the others die unless drawn."""
    first: dict[int, int] = {}
    nodes = list(tree.nodes)
    for child in tree.children(number):
        same = first.setdefault(nodes[child].token, child)
        if same == child:
            continue
        for below in range(len(nodes)):
            if nodes[below].parent == child:
                nodes[below] = replace(nodes[below], parent=same)
        if not nodes[child].drawn:
            nodes[child] = replace(nodes[child], live=False)
            own, more = nodes[same].score, tree.nodes[child].score
            total = max(own, more) + log1p(exp(-abs(own - more)))
            nodes[same] = replace(nodes[same], score=total)
    return replace(tree, nodes=tuple(nodes))


def pick(op: ir.Pick, scope: Scope, world: World) -> tuple[Any, ...]:
    tree = scope[op.tree]
    match op.of:
        case "newest":
            numbers = list(tree.newest)
        case "leaves":
            numbers = tree.leaves
        case "all":
            numbers = list(range(len(tree.nodes))) or [ROOT]
        case _:
            tops = numbered(scope[op.at]).numbers
            numbers = [*tops, *tree.below(tops)]
    if op.nodes is not None:
        return (Picked(tree, [numbers[i] for i in op.nodes]),)
    bound = op.best if op.best is not None else op.worst
    if bound is None and op.count is None:
        return (Picked(tree, numbers),)
    live = [i for i in numbers if i in tree.living and (i != ROOT or len(numbers) == 1)]
    most = len(numbers) if bound is None else bound
    most = most if op.count is None else min(most, max(int(scope[op.count]), 0))
    worst, own = op.worst is not None, op.by == "own"
    chosen = live if live == [ROOT] else tree.ranked(live, most, worst=worst, own=own)
    return (Picked(tree, chosen),)


def prune(op: ir.Prune, scope: Scope, world: World) -> tuple[Any, ...]:
    tree = scope[op.tree]
    return (tree.only(i for i in numbered(scope[op.to]).numbers if i != ROOT),)


def reroot(op: ir.Reroot, scope: Scope, world: World) -> tuple[Any, ...]:
    tree, place, nodes = scope[op.tree], dict[int, int](), list[Node]()
    for number in [ROOT, *tree.live_nodes]:
        if tree.path(number) == world.text:
            place[number] = ROOT
        elif number != ROOT and tree.nodes[number].parent in place:
            if op.nodes is None or len(nodes) < op.nodes:
                place[number] = len(nodes)
                nodes.append(replace(tree.nodes[number], parent=place[tree.nodes[number].parent]))
    return (Tree(world.text, tuple(nodes), tuple(range(len(nodes))) or (ROOT,)),)


def adopt(op: ir.Adopt, scope: Scope, world: World) -> tuple[Any, ...]:
    tree, path = scope[op.tree], scope[op.path]
    judged = set(tree.below([path.start]))
    stays = [i for i in range(len(tree.nodes)) if i not in judged]
    kept, nodes = tree.only(stays), list[Node]()
    above = ROOT if path.start == ROOT else stays.index(path.start)
    longer = kept
    for token in path.tokens:
        row = scope[op.rows].row(longer.path(above))
        score = 0.0 if row is None else world.log_probability(row, token)
        nodes.append(Node(token, above, True, score, "draw", row))
        longer = kept.grown(nodes)
        above = len(longer.nodes) - 1
    return (longer if nodes else kept.grown(()),)


def forward(op: ir.Forward, scope: Scope, world: World) -> tuple[Any, ...]:
    return world.forward(op, [numbered(scope[name]) for name in op.nodes])


def mix(op: ir.Mix, scope: Scope, world: World) -> tuple[Any, ...]:
    tree, mixed = scope[op.over], dict[Any, Any]()
    for path, row in scope[op.rows].of.items():
        other = _grown_from(tree, path)
        if other is not None:
            mixed[path] = world.mixed(op.law, [row, other])
    return (Logits(mixed),)


def _grown_from(tree: Tree, path: tuple[int, ...]) -> Any:
    for number in tree.numbers:
        if tree.path(number) == path:
            rows = [tree.nodes[i].logits for i in tree.children(number)]
            return next((row for row in rows if row is not None), tree.attached.get(number))
    return None


def measure(op: ir.Measure, scope: Scope, world: World) -> tuple[Any, ...]:
    if isinstance(op.operand, State):
        span = op.kind.get("layers")
        return (float(world.lag(op.operand, range(span.start, span.stop))),)
    value = scope[op.operand]
    if isinstance(value, Judged):
        return (float(len(value.nodes)),)
    if isinstance(value, Logits):
        row = next(iter(value.of.values()), None)
        return (0.0 if row is None else world.measured(op.kind, row),)
    if isinstance(value, list):
        return (float(value[0]),)
    nodes = Picked(value, value.numbers) if isinstance(value, Tree) else value
    live = [i for i in nodes.numbers if i != ROOT and i in nodes.tree.living]
    if op.kind.name == "count":
        return (float(len(live)),)
    chances = sorted((exp(nodes.tree.score(i)) for i in live), reverse=True)
    return (float(sum(chances[: op.kind.integer("best", 1)])),)


def compute(op: ir.Compute, scope: Scope, world: World) -> tuple[Any, ...]:
    value = evaluate(op.formula, {key: float(scope[name]) for key, name in op.operands})
    return (value if isinstance(value, bool) else float(value),)


def uniform(op: ir.Uniform, scope: Scope, world: World) -> tuple[Any, ...]:
    offset = op.offset + world.trip * op.count
    return (world.uniforms(op.stream, op.key, offset, op.count),)


def accept(op: ir.Accept, scope: Scope, world: World) -> tuple[Any, ...]:
    tree = scope[op.tree]
    start = ROOT if op.at is None else numbered(scope[op.at]).numbers[0]
    if op.target is None:
        path: list[int] = []
        while below := tree.children(path[-1] if path else start):
            path.append(below[0])
        return (Judged(tree, tuple(path), None, start),)
    logits = scope[op.target]
    if start not in tree.living or logits.row(tree.path(start)) is None:
        return (Judged(tree, start=start, dead=True),)
    by = None if op.by is None else scope[op.by]
    return (world.judged(op, tree, start, logits, by),)


def emit(op: ir.Emit, scope: Scope, world: World) -> tuple[Any, ...]:
    path = scope[op.path]
    count = world.emit(path.tokens)
    bonus = path.bonus if count > len(path.nodes) else None
    return (replace(path, nodes=path.nodes[:count], bonus=bonus),)


def commit(op: ir.Commit, scope: Scope, world: World) -> tuple[Any, ...]:
    world.commit(op.state, None if op.alive is None else scope[op.alive])
    return ()


def load(op: ir.Load, scope: Scope, world: World) -> tuple[Any, ...]:
    value = world.values[op.state]
    return (Tree(world.begin).grown(value) if isinstance(value, tuple) else value,)


def store(op: ir.Store, scope: Scope, world: World) -> tuple[Any, ...]:
    value, state = scope[op.value], world.plan.state(op.state)
    if isinstance(value, Tree):
        nodes = value.nodes
        if not state.keeps_laws:
            nodes = tuple(Node(n.token, n.parent, n.live) for n in nodes)
        value = nodes
    world.values[op.state] = value
    return ()


def update(op: ir.Update, scope: Scope, world: World) -> tuple[Any, ...]:
    world.learn(op.source, scope[op.tree], None if op.rows is None else scope[op.rows], op.last)
    return ()


def refresh(op: ir.Refresh, scope: Scope, world: World) -> tuple[Any, ...]:
    world.refresh(op.state)
    return ()


def repeat(op: ir.Repeat, scopes: Mapping[int, Scope], batch: Batch) -> None:
    carried = {row: [scope[name] for _, name in op.carried] for row, scope in scopes.items()}
    going = {row for row, scope in scopes.items() if op.only is None or scope[op.only]}
    outer = {row: batch.worlds[row].trip for row in scopes}
    trips = dict.fromkeys(scopes, 0)
    for index in range(op.count):
        if not going:
            break
        inner = {}
        for row in sorted(going):
            batch.worlds[row].trip = outer[row] * op.count + index
            names = (parameter for parameter, _ in op.carried)
            inner[row] = {**scopes[row], **dict(zip(names, carried[row], strict=True))}
        batch.run(op.body.ops, inner)
        for row, scope in inner.items():
            trips[row] += 1
            carried[row] = [scope[name] for name in op.body.yields]
            if op.body.until is not None and scope[op.body.until]:
                going.discard(row)
    for row, scope in scopes.items():
        batch.worlds[row].trip = outer[row]
        scope.update(zip(op.results, carried[row], strict=True))
    if op.body.until is not None:
        batch.trips.append(trips)


def when(op: ir.When, scopes: Mapping[int, Scope], batch: Batch) -> None:
    inner = {row: dict(scope) for row, scope in scopes.items() if scope[op.flag]}
    batch.run(op.body.ops, inner)
    for row, scope in scopes.items():
        names, source = (
            (op.body.yields, inner[row]) if row in inner else (op.otherwise, scope)
        )
        scope.update(zip(op.results, [source[name] for name in names], strict=True))


def segment(op: ir.Segment, scopes: Mapping[int, Scope], batch: Batch) -> None:
    inner = {row: dict(scope) for row, scope in scopes.items()}
    batch.run(op.body.ops, inner)
    for row, scope in scopes.items():
        scope.update(zip(op.results, [inner[row][n] for n in op.body.yields], strict=True))


REGIONS: dict[str, Callable[[Any, Mapping[int, Scope], Batch], None]] = {
    "repeat": repeat, "when": when, "segment": segment,
}
MEANINGS: dict[str, Callable[[Any, Scope, World], tuple[Any, ...]]] = {
    "root": root, "grow": grow, "lookup": lookup, "place": place, "relabel": relabel,
    "graft": graft, "pick": pick, "prune": prune, "reroot": reroot, "adopt": adopt,
    "forward": forward, "mix": mix, "measure": measure, "compute": compute, "uniform": uniform,
    "accept": accept, "emit": emit, "commit": commit, "load": load, "store": store,
    "update": update, "refresh": refresh,
}
