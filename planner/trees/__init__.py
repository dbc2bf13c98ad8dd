"""Trees of drafted tokens: their shapes, the best of them, and how they are grown."""

from __future__ import annotations

from specplan.planner.trees.beam_growth import BeamGrowth, mass_threshold
from specplan.planner.trees.best_first import (
    best_first_paths,
    best_first_tree,
    best_in_context,
)
from specplan.planner.trees.choices import read_choices, write_choices
from specplan.planner.trees.confidence_stop import (
    ConfidenceStop,
    OptimalStop,
    optimal_stop,
)
from specplan.planner.trees.drafted import (
    Children,
    Drafted,
    Policy,
    PolicyValue,
    children_of,
    policy_value,
)
from specplan.planner.trees.families import expansion_tree, head_table, separate_chains
from specplan.planner.trees.growmap import read_growmap, write_growmap
from specplan.planner.trees.layered_growth import LayeredGrowth
from specplan.planner.trees.levels import GrowLevel, grow_levels, tree_of_levels
from specplan.planner.trees.objective import TreeChoice, TreeObjective
from specplan.planner.trees.round_times import RoundTimes, level_widths
from specplan.planner.trees.search import TreeSearch, search_trees
from specplan.planner.trees.shape import Hazard, RankPath, StaticTree, chain, tree_of_paths
from specplan.planner.trees.table import AcceptanceTable
from specplan.planner.trees.thresholds import LOOKS_BACK, Tuned, draft_threshold, tuned_threshold

__all__ = [
    "LOOKS_BACK",
    "AcceptanceTable",
    "BeamGrowth",
    "Children",
    "ConfidenceStop",
    "Drafted",
    "GrowLevel",
    "Hazard",
    "LayeredGrowth",
    "OptimalStop",
    "Policy",
    "PolicyValue",
    "RankPath",
    "RoundTimes",
    "StaticTree",
    "TreeChoice",
    "TreeObjective",
    "TreeSearch",
    "Tuned",
    "best_first_paths",
    "best_first_tree",
    "best_in_context",
    "chain",
    "children_of",
    "draft_threshold",
    "expansion_tree",
    "grow_levels",
    "head_table",
    "level_widths",
    "mass_threshold",
    "optimal_stop",
    "policy_value",
    "read_choices",
    "read_growmap",
    "search_trees",
    "separate_chains",
    "tree_of_levels",
    "tree_of_paths",
    "tuned_threshold",
    "write_choices",
    "write_growmap",
]
