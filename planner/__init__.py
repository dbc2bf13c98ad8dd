"""The problem, the drafting methods and the search over what they offer; no torch.

The names below are the planner's front; other packages use nothing else of it.
"""

from __future__ import annotations

from specplan.planner.drafters.candidates import (
    MOST_SKIPPED_DRAFT,
    later_drafters,
    leaves_blocks_out,
    measured_here,
    own_modules,
    possible_drafters,
    profiling_plan,
    searches_blocks,
)
from specplan.planner.drafters.gates import Gates, write_gates
from specplan.planner.drafters.parts import CHUNK, POOL, SINKS, WINDOW
from specplan.planner.drafters.prices import DrafterPrices
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.drafters.skip_search import (
    SparedBlock,
    first_guesses,
    refine,
    searched_blocks,
)
from specplan.planner.drafters.token_exits import Shares, write_token_exits
from specplan.planner.explain.data import explain
from specplan.planner.explain.words import explain_words
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.measured.plans import MeasuredPlan, MeasuredPlans, plan_key
from specplan.planner.measured.served import plain_plan
from specplan.planner.measured.tuned import tuned
from specplan.planner.method import Family, Method, Options, discover_methods
from specplan.planner.problem.limits import Followed, Quality
from specplan.planner.problem.loading import load_problem, problem_from_dict
from specplan.planner.problem.schema import Problem, problem_json_schema
from specplan.planner.problem.setting_checks import DATASTORE_FILE
from specplan.planner.problem.workload import Prompt, RequestLengths, read_prompts, read_trace
from specplan.planner.quality.limit import changes_output
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.limits import keeps_limits
from specplan.planner.search.open_settings import OpenSettings
from specplan.planner.search.search import SearchResult, search
from specplan.planner.search.settings import PLAIN, settings_by
from specplan.planner.search.uncertainty import request_draws
from specplan.planner.templates.chains import cache_policy
from specplan.planner.templates.source_drafts import copies_by_match
from specplan.planner.trees import StaticTree

__all__ = [
    "CHUNK",
    "DATASTORE_FILE",
    "MOST_SKIPPED_DRAFT",
    "PLAIN",
    "POOL",
    "SINKS",
    "WINDOW",
    "Candidate",
    "DrafterPrices",
    "Family",
    "Followed",
    "Gates",
    "MeasuredPlan",
    "MeasuredPlans",
    "Method",
    "OpenSettings",
    "Options",
    "Problem",
    "ProblemFacts",
    "Prompt",
    "Quality",
    "RequestLengths",
    "SearchResult",
    "Shares",
    "SparedBlock",
    "StaticTree",
    "acceptance_key",
    "cache_policy",
    "changes_output",
    "copies_by_match",
    "discover_methods",
    "explain",
    "explain_words",
    "first_guesses",
    "gather_facts",
    "keeps_limits",
    "later_drafters",
    "leaves_blocks_out",
    "load_problem",
    "measured_here",
    "own_modules",
    "plain_plan",
    "plan_key",
    "possible_drafters",
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
    "write_gates",
    "write_token_exits",
]
