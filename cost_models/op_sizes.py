"""How large the ops of a round are: nodes that a forward runs, names and widths of the others."""

from __future__ import annotations

from specplan.ir.infer import Step
from specplan.ir.ops import Accept, Commit, Forward, Graft, Grow, Lookup, Measure, Pick
from specplan.ir.types import NodesType, PathType, TreeType
from specplan.ir.values import Value


def forward_nodes(step: Step) -> tuple[bool, int]:
    """Whether a forward's operands hold the root, and how many drafted nodes they hold."""
    assert isinstance(step.op, Forward)
    root, drafted = False, 0
    for name in step.op.nodes:
        held = step.reads[name]
        if isinstance(held, TreeType):
            root, drafted = True, drafted + held.nodes
        elif isinstance(held, NodesType):
            root = root or held.root
            drafted += held.width - (1 if held.root else 0)
    return root, drafted


def op_size(step: Step) -> tuple[str, int]:
    """Name and width by which a device knows an op that is no forward."""
    op, given = step.op, next(iter(step.gives), None)
    match op:
        case Grow():
            before = step.reads[op.tree]
            assert isinstance(before, TreeType) and isinstance(given, TreeType)
            return f"grow:{op.how}", given.nodes - before.nodes
        case Graft():
            assert isinstance(given, TreeType)
            return f"graft:{op.same}", max(1, given.nodes)
        case Accept():
            return f"accept:{op.rule.name}", judged_tree(step).nodes
        case Pick() if op.best is not None:
            tree = step.reads[op.tree]
            assert isinstance(tree, TreeType)
            return "pick:best", tree.nodes if op.of == "all" else tree.newest_count
        case Measure() if op.variant:
            held = step.reads.get(op.operand) if isinstance(op.operand, Value) else None
            nodes = 1
            if isinstance(held, TreeType | NodesType):
                nodes = held.nodes if isinstance(held, TreeType) else held.width
            return f"{op.keyword}:{op.variant}", max(1, nodes)
        case Lookup():
            before = step.reads[op.tree]
            assert isinstance(before, TreeType) and isinstance(given, TreeType)
            return op.keyword, max(1, given.nodes - before.nodes)
        case Commit():
            path = step.reads[op.path]
            assert isinstance(path, PathType)
            return "commit:chain" if path.chain else "commit:tree", 1
    if isinstance(given, TreeType):
        return op.keyword, max(1, given.nodes)
    return op.keyword, 1


def judged_tree(step: Step) -> TreeType:
    """The tree that an `accept` judges."""
    assert isinstance(step.op, Accept)
    tree = step.reads[step.op.tree]
    assert isinstance(tree, TreeType)
    return tree
