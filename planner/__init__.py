"""The problem, the drafting methods and the search over what they offer; no torch.

The names below are the planner's front; other packages use nothing else of it.
"""

from __future__ import annotations

from specplan.planner.candidates import Candidate
from specplan.planner.chain_drafters import kept_by
from specplan.planner.drafter_parts import CHUNK, SINKS
from specplan.planner.drafter_prices import DrafterPrices
from specplan.planner.explain import explain
from specplan.planner.explain_words import explain_words
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.folder_checks import DATASTORE_FILE
from specplan.planner.limits import keeps_limits
from specplan.planner.loading import load_problem, problem_from_dict
from specplan.planner.measured_plans import MeasuredPlan, MeasuredPlans, plan_key
from specplan.planner.method import Family, Method, Options, discover_methods
from specplan.planner.open_settings import OpenSettings
from specplan.planner.problem import Problem, problem_json_schema
from specplan.planner.profiles import acceptance_key
from specplan.planner.search import PLAIN, SearchResult, search, settings_by
from specplan.planner.skip_search import (
    SparedBlock,
    first_guesses,
    refine,
    searched_blocks,
)
from specplan.planner.trees import StaticTree
from specplan.planner.tuned import tuned
from specplan.planner.uncertainty import request_draws
from specplan.planner.who_drafts import (
    MOST_SKIPPED_DRAFT,
    drafters,
    later_drafters,
    leaves_blocks_out,
    measured_here,
    profiling_plan,
    searches_blocks,
)
from specplan.planner.workload_files import Prompt, RequestLengths, read_prompts, read_trace

__all__ = [
    "CHUNK",
    "DATASTORE_FILE",
    "MOST_SKIPPED_DRAFT",
    "PLAIN",
    "SINKS",
    "Candidate",
    "DrafterPrices",
    "Family",
    "MeasuredPlan",
    "MeasuredPlans",
    "Method",
    "OpenSettings",
    "Options",
    "Problem",
    "ProblemFacts",
    "Prompt",
    "RequestLengths",
    "SearchResult",
    "SparedBlock",
    "StaticTree",
    "acceptance_key",
    "discover_methods",
    "drafters",
    "explain",
    "explain_words",
    "first_guesses",
    "gather_facts",
    "keeps_limits",
    "kept_by",
    "later_drafters",
    "leaves_blocks_out",
    "load_problem",
    "measured_here",
    "plan_key",
    "problem_from_dict",
    "problem_json_schema",
    "profiling_plan",
    "read_prompts",
    "read_trace",
    "refine",
    "request_draws",
    "search",
    "searched_blocks",
    "searches_blocks",
    "settings_by",
    "tuned",
]
