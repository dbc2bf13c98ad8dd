"""A small folder with a problem and everything that planning it needs.

That is the models' config.json, the acceptance profiles and the device, measured ones included, but
no weights, tokenizers, prompts and corpora.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from specplan.checks.plans import ANSWER, PROBLEM, difference, write_answer
from specplan.checks.worker import Answer, answer_of, described
from specplan.cost_models.acceptance.key import file_name
from specplan.cost_models.models.model_shape import is_gguf
from specplan.ir.errors import UsageError
from specplan.ir.files import check_destination, read_text, staged, write_atomic
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.problem.paths import device_is_path
from specplan.planner.problem.setting_checks import DATASTORE_FILE
from specplan.problems import ProblemLike, as_problem
from specplan.progress import Progress, silent

_COMMENT = "# Recorded by `specplan check record`; answer.json has the plan and its estimates.\n"


def record(problem: ProblemLike, out: Path, progress: Progress = silent) -> Answer:
    """Write a record of a problem; missing measurements are made or read as usual.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        out: the folder to write; an earlier record is replaced.
        progress: called for every long step.

    Returns:
        The answer that was recorded.

    Raises:
        UsageError: the problem is broken, `out` has other content, or the answer without the
            weights is another one.
        UndecidedError: no acceptance is known for any drafter that the problem lists.
    """
    from specplan.gathering import find
    from specplan.result import Result, check_decided

    checked = as_problem(problem)
    check_destination(out, ANSWER, "record")
    search = find(checked, progress)
    check_decided(search.undecided, "a record", "specplan check record")
    facts = search.facts
    with staged(out.resolve()) as folder:
        data = _store(facts, folder)
        write_atomic(folder / PROBLEM, _COMMENT + yaml.safe_dump(data, sort_keys=False))
        answer = answer_of(str(folder / PROBLEM))
        _check_same(Result(search), answer, out)
        write_answer(folder, answer)
    return answer


def _store(facts: ProblemFacts, folder: Path) -> dict[str, Any]:
    """Write the files of the problem below `folder`; returns the problem that names them."""
    problem = facts.problem
    data = problem.model_dump(mode="json", exclude_defaults=True)
    data["schema_version"] = problem.schema_version
    named = [("target", problem.models.target, data["models"]["target"])]
    drafts = zip(problem.models.drafts, data["models"].get("drafts", ()), strict=True)
    named += [(draft.name, draft, entry) for draft, entry in drafts]
    for name, model, entry in named:
        if is_gguf(model.path):
            raise UsageError(
                "a GGUF file is not recorded",
                where=str(model.path),
                remedy="Name a folder with the model's config.json, and a weight_format.",
            )
        (folder / name).mkdir()
        shutil.copyfile(model.path / "config.json", folder / name / "config.json")
        entry["path"] = name
    data["workload"].pop("prompts", None)
    data.pop("profiles", None)
    if problem.workload.trace is not None:
        shutil.copyfile(problem.workload.trace, folder / "trace.jsonl")
        data["workload"]["trace"] = "trace.jsonl"
    if problem.datastore is not None:
        (folder / "datastore").mkdir()
        shutil.copyfile(problem.datastore / DATASTORE_FILE, folder / "datastore" / DATASTORE_FILE)
        data["datastore"] = "datastore"
    for key in ("gates", "token_exits"):
        if (path := getattr(problem, key)) is not None:
            shutil.copyfile(path, folder / f"{key}.tsv")
            data[key] = f"{key}.tsv"
    for key in ("exit_classifier", "exit_policy"):
        if (path := getattr(problem, key)) is not None:
            (folder / key).mkdir()
            for name in ("config.json", "model.safetensors"):
                shutil.copyfile(path / name, folder / key / name)
            data[key] = key
    data["device"] = _store_device(facts, folder)
    data["acceptance"] = {}
    bare = gather_facts(problem_from_dict(data, folder), device=facts.device).shapes
    digests = {shape.digest: bare[role].digest for role, shape in facts.shapes.items()}
    for drafter, profile in facts.profiles.items():
        path = folder / "acceptance" / f"{file_name(drafter)}.json"
        profile.save(path)
        data["acceptance"][str(drafter)] = f"acceptance/{path.name}"
    for path in folder.rglob("*.json"):
        _rename_models(path, digests)
    return data


def _store_device(facts: ProblemFacts, folder: Path) -> str:
    """Store the device next to the problem; returns its name in the recorded problem."""
    from specplan.cost_models.devices.measured.compiled import CompiledDevice
    from specplan.cost_models.devices.measured.device import MeasuredDevice

    device = facts.device.base if isinstance(facts.device, CompiledDevice) else facts.device
    if isinstance(device, MeasuredDevice):
        device.table.save(folder / "device.json")
        return "./device.json"
    if device_is_path(facts.problem.device):
        shutil.copyfile(facts.problem.device, folder / "device.yaml")
        return "./device.yaml"
    return facts.problem.device


def _rename_models(path: Path, digests: dict[str, str]) -> None:
    """Replace the digests of models by those that they have without their weights."""
    text = read_text(path)
    changed = text
    for old, new in digests.items():
        changed = changed.replace(f'"{old}"', f'"{new}"')
    if changed != text:
        write_atomic(path, changed)


def _check_same(planned: Any, answer: Answer, out: Path) -> None:
    """Refuse a record whose answer differs from that of the problem itself."""
    changes = difference(described(planned), answer)
    if changes:
        raise UsageError(
            f"without weights the problem is planned differently:\n{changes}\n",
            where=str(out),
            remedy="State every model's dtype in the problem, or record another problem.",
        )
