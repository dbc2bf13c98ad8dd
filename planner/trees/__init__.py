"""Static trees of drafted tokens: their shapes, and the best of them."""

from __future__ import annotations

from specplan.planner.trees.objective import TreeChoice, TreeObjective
from specplan.planner.trees.round_times import RoundTimes, level_widths
from specplan.planner.trees.search import OrderedSearch, TreeSearch, search_trees
from specplan.planner.trees.shape import (
    GrowLevel,
    RankPath,
    StaticTree,
    chain,
    expansion_tree,
    grow_levels,
    tree_of_paths,
)
from specplan.planner.trees.table import AcceptanceTable

__all__ = [
    "AcceptanceTable",
    "GrowLevel",
    "OrderedSearch",
    "RankPath",
    "RoundTimes",
    "StaticTree",
    "TreeChoice",
    "TreeObjective",
    "TreeSearch",
    "chain",
    "expansion_tree",
    "grow_levels",
    "level_widths",
    "search_trees",
    "tree_of_paths",
]
