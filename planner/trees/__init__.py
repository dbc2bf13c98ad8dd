"""Trees of drafted tokens: their shapes, the best of them, and how they are grown."""

from __future__ import annotations

from specplan.planner.trees.best_first import best_first_paths, best_first_tree
from specplan.planner.trees.levels import GrowLevel, grow_levels, tree_of_levels
from specplan.planner.trees.objective import TreeChoice, TreeObjective
from specplan.planner.trees.round_times import RoundTimes, level_widths
from specplan.planner.trees.search import TreeSearch, search_trees
from specplan.planner.trees.shape import Hazard, RankPath, StaticTree, chain, tree_of_paths
from specplan.planner.trees.table import AcceptanceTable

__all__ = [
    "AcceptanceTable",
    "GrowLevel",
    "Hazard",
    "RankPath",
    "RoundTimes",
    "StaticTree",
    "TreeChoice",
    "TreeObjective",
    "TreeSearch",
    "best_first_paths",
    "best_first_tree",
    "chain",
    "grow_levels",
    "level_widths",
    "search_trees",
    "tree_of_levels",
    "tree_of_paths",
]
