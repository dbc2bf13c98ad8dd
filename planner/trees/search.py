"""The best trees of every size and depth, whatever the table."""

from __future__ import annotations

from specplan.ir.errors import UsageError
from specplan.planner.trees.ordered import OrderedSearch
from specplan.planner.trees.programme import ProgrammeSearch
from specplan.planner.trees.table import AcceptanceTable

TreeSearch = OrderedSearch | ProgrammeSearch
"""`values[depth limit, nodes]` are tokens per round, `tree(nodes, depth)` is the tree."""


def search_trees(table: AcceptanceTable, nodes: int, depth: int) -> TreeSearch:
    """The best trees of at most `nodes` nodes and `depth` levels, the root not counted.

    Exact for any table: best-first where no hazard is larger than that of its elder sibling, by
    dynamic programming elsewhere. Values of all sizes and depths are found in one pass, when first
    asked for; a tree is traced when it is asked for. Of equally good trees the same one is found
    everywhere; each search says which.

    Raises:
        UsageError: when a budget is negative.
    """
    if nodes < 0 or depth < 0:
        raise UsageError(f"a tree cannot have {nodes} nodes and {depth} levels")
    searched = OrderedSearch if table.is_ordered else ProgrammeSearch
    return searched(table, nodes, depth)
