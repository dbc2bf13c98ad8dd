"""Every emitted case of an engine as files, for models whose configurations are really there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from specplan.backends.engines.job import Emission, Job
from specplan.backends.engines.registry import open_table, project
from specplan.backends.engines.table import read_tables
from specplan.backends.engines.writing import check_documents, render
from specplan.ir.plan import Plan
from tests.backends.engines.examples import FORMS, job, plans, with_form
from tests.backends.engines.test_golden import cases
from tests.engines.environments import REPOSITORY
from tests.planner.rich_facts import rich_facts

REFERENCE = REPOSITORY / "examples/reference_models"
GENERATED = ("plain", "model", "text")
"""Structures that run with the reference models."""
SPECULATORS = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "speculators_version": "0.2.0",
    "norm_before_residual": True,
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"architectures": ["Glm4MoeForCausalLM"], "name_or_path": "target"},
    },
}


def write_models(folder: Path) -> dict[str, str]:
    """Folders with the configurations of target and drafters, by role; heads of all forms."""
    rich_facts(folder)
    head = json.loads((folder / "head/config.json").read_text(encoding="utf-8"))
    inner = {**head, "architectures": ["LlamaForCausalLM"]}
    own = {"draft_vocab_size": head["draft_vocab_size"], "transformer_layer_config": inner}
    block = json.loads((folder / "flash/config.json").read_text(encoding="utf-8"))
    layers = {"target_layer_ids": [1, 4], "mask_token_id": 31999}
    dspark = {**block, "architectures": ["Qwen3DSparkModel"], "markov_rank": 64, **layers}
    forms = {
        "eagle/speculators": {**SPECULATORS, **own},
        "p_eagle": {**head, "ptd_token_id": 31999},
        "dspark": dspark,
    }
    for form, config in forms.items():
        path = folder / form.replace("/", "_")
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    parallel = json.loads((folder / "draft/config.json").read_text(encoding="utf-8"))
    (folder / "pard").mkdir(exist_ok=True)
    (folder / "pard/config.json").write_text(json.dumps({**parallel, "pard_token": 31999}))
    roles = {role: str(folder / role) for role in ("target", "draft", "head", "flash")}
    return roles | {"module_0": roles["target"]}


def emitted(engine: str, models: Path, version: str = "") -> Iterator[tuple[str, Emission]]:
    """Every case that a version of the engine expresses; the newest version by default."""
    table = read_tables(engine)[version] if version else open_table(engine)
    roles = write_models(models)
    for name, plan in cases().items():
        if table.refusals(plan):
            continue
        given = job(table, plan, 1, 0.8 if plan.assumptions.temperature else 0.0)
        paths = roles | ({"draft": str(models / "pard")} if "parallel" in name else {})
        yield name, project(table, replace(given, paths=paths))
    for name, (usual, form) in FORMS.items():
        plan = plans()[usual]
        own = with_form(table, plan, form)
        if not own.refusals(plan):
            role = "head" if usual == "head" else "flash"
            paths = roles | {role: str(models / form.replace("/", "_"))}
            yield name, project(own, replace(job(own, plan), paths=paths))


def reference(engine: str) -> Iterator[tuple[str, Emission]]:
    """The cases that run with the reference models."""
    table = open_table(engine)
    paths = {role: str(REFERENCE / role) for role in ("target", "draft")}
    for name in GENERATED:
        plan: Plan = plans(1)[name]
        given: Job = replace(job(table, plan), paths=paths, dtype="float32")
        yield name, project(table, given)


def write(engine: str, name: str, emission: Emission, folder: Path) -> None:
    """The files of a case in a folder of its name, as `specplan emit` writes them."""
    check_documents(engine, emission)
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    files = render(emission) | {"command": emission.command}
    for file, text in files.items():
        (place / file).write_text(text, encoding="utf-8")
    if emission.forced is not None:
        load = job(open_table(engine), plans()["plain"]).loads[0]
        forced, measure = emission.forced.at(load)
        (place / "forced").write_text(forced, encoding="utf-8")
        (place / "measure").write_text(measure, encoding="utf-8")
