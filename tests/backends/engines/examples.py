"""Plans of every structure that an engine may be asked for, and jobs that never change."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from specplan.backends.engines.job import Job, Load
from specplan.backends.engines.structure import read_structure
from specplan.backends.engines.table import Table
from specplan.cost_models.intervals import Interval
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, discover_methods
from specplan.planner.templates.merged_rounds import scheduled
from specplan.planner.templates.plan_text import draft_and_verify
from tests.ir.plans_on_disk import plan_of
from tests.planner.rich_facts import rich_facts

PATHS = {
    "target": "/models/target",
    "draft": "/models/draft",
    "head": "/models/head",
    "flash": "/models/flash",
    "module_0": "/models/target",
}


TREE = "dynamic tree of 8, beam 2, depth 3, by draft"


@cache
def facts(temperature: float = 0.0, batch: int = 16) -> ProblemFacts:
    """A target with something of every kind that may draft for it."""
    with tempfile.TemporaryDirectory() as folder:
        work = {"batch_sizes": [1, batch] if batch > 1 else [1]}
        return rich_facts(Path(folder), temperature=temperature, workload=lengths(work))


def lengths(given: dict[str, object]) -> dict[str, object]:
    return {"prompt_tokens": 40, "output_tokens": 32} | given


@cache
def families(method: str, temperature: float, batch: int) -> tuple[Family[Any], ...]:
    """The families of settings that a method offers."""
    choices = discover_methods()[method].choices(facts(temperature, batch))
    return tuple(family for family in choices if isinstance(family, Family))


@cache
def setting(method: str, words: str, temperature: float = 0.0, batch: int = 16) -> Plan:
    """The plan of a method's setting that is told in these words."""
    for family in families(method, temperature, batch):
        for options in family.settings:
            if options.words == words:
                return discover_methods()[method].plan(facts(temperature, batch), options)
    raise KeyError(words)


@cache
def plans(batch: int = 16) -> dict[str, Plan]:
    """One plan of each structure, by name."""
    tree = next(
        options
        for family in families("draft_model", 0.0, batch)
        if family.name.startswith("static tree")
        for options in family.settings
        if not options.tree.is_chain
    )
    return {
        "plain": setting("autoregressive", "plain", 0.0, batch),
        "model": setting("draft_model", "chain of 4 by draft", 0.0, batch),
        "model_drawn": setting("draft_model", "chain of 4 by draft", 0.8, batch),
        "model_blocks": setting(
            "draft_model", "chain of 4 by draft, judged as a block", 0.8, batch
        ),
        "model_bar": setting(
            "adaptive_length", "up to 10 by draft, until a token is below 0.4", 0.0, batch
        ),
        "model_success": setting(
            "heuristic_length", "5 by draft, then two more or one less, up to 6", 0.0, batch
        ),
        "model_parallel": parallel_model(batch),
        "model_tree": discover_methods()["draft_model"].plan(facts(0.0, batch), tree),
        "head": setting("eagle3", "chain of 3 by head", 0.0, batch),
        "modules": setting("mtp", "chain of 2 by the target's modules", 0.0, batch),
        "block": setting("block_drafter", "5 of a block of 7 by flash", 0.0, batch),
        "text": setting("prompt_lookup", "up to 8 tokens after a match of 1 to 8", 0.0, batch),
        "automaton": setting("suffix_automaton", "up to 8 tokens", 0.0, batch),
        "past": setting("suffix", "up to 8 tokens of past outputs", 0.0, batch),
        "first_layers": setting("early_exit", "chain of 3 after layer 1", 0.0, batch),
        "model_dynamic_tree": setting("dynamic_tree", TREE, 0.0, batch),
        "head_dynamic_tree": dynamic_tree(),
    }


def parallel_model(batch: int) -> Plan:
    """PARD: one pass of a draft model, over masks, drafts four tokens."""
    drafted = """%t0 = root
%x = forward draft %t0 cache=@draft_kv pending=5 levels=4
%c = repeat 4 (%t = %t0) {
  %f = pick %t of=newest
  %n = grow %t at=%f logits=%x
  yield %n
}"""
    method = discover_methods()["draft_model"]
    return draft_and_verify(facts(0.0, batch), method, drafted, 4, models=("draft",))


def dynamic_tree() -> Plan:
    """EAGLE-2's tree: ten by ten, six levels, 59 verified."""
    return plan_of("expand_rerank")


def by_batch(parts: list[tuple[str, Plan]], name: str = "by_batch") -> Plan:
    """A schedule by batch size: (condition, plan) in order; the last condition is not looked at."""
    rounds = {f"r{index}": plan for index, (_, plan) in enumerate(parts)}
    conditions = [(condition, f"r{index}") for index, (condition, _) in enumerate(parts)]
    conditions[-1] = ("", conditions[-1][1])
    return check_plan(scheduled(name, rounds, conditions))


def shrinking_head() -> Plan:
    """Five tokens up to batch 4, two above."""
    return by_batch(
        [
            ("batch <= 4", setting("eagle3", "chain of 5 by head")),
            ("", setting("eagle3", "chain of 2 by head")),
        ]
    )


def stopping(method: str, words: str) -> Plan:
    """Drafts up to batch 4, then decodes plainly."""
    return by_batch(
        [("batch <= 4", setting(method, words)), ("", setting("autoregressive", "plain"))]
    )


def job(table: Table, plan: Plan, devices: int = 1, temperature: float = 0.0) -> Job:
    """A job of which nothing depends on where the tests run."""
    loads = tuple(
        Load(batch, 40, 32, Interval(2.25, 2.0, 2.5), Interval(100.0 * batch, 90.0, 2000.0))
        for batch in (1, 16)
    )
    sampling = {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    return Job(table, plan, PATHS, loads, devices, "bfloat16", sampling)


FORMS = {
    "head_speculators": ("head", "eagle/speculators"),
    "head_eagle1": ("head", "eagle1"),
    "head_eagle1_sglang": ("head", "eagle1/sglang"),
    "block_dspark": ("block", "dspark"),
    "block_p_eagle": ("block", "p_eagle"),
}
"""Structures whose drafter has a checkpoint of another form than usual, by name."""


def with_form(table: Table, plan: Plan, form: str) -> Table:
    """A table for a problem whose drafter has a checkpoint of this form."""
    return replace(table, forms={read_structure(plan).longest.models[0]: form})
