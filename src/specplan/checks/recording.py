"""A problem with the facts that planning needs and nothing else, in one small folder.

Weights, tokenizers, prompts and corpora stay behind: the models' config.json, the acceptance
profiles and the device are what plans are made of. A measured device and measured acceptance are
stored as they were measured.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from specplan.checks.plans import ANSWER, PROBLEM, difference, write_answer
from specplan.checks.worker import Answer, answer_of, described
from specplan.cost_models.acceptance.drafters import file_name
from specplan.cost_models.models.model_shape import is_gguf
from specplan.ir.errors import UsageError
from specplan.ir.files import check_destination, read_text, staged, write_atomic
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.problem.folder_checks import DATASTORE_FILE
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.problem.paths import device_is_path
from specplan.problems import ProblemLike, as_problem
from specplan.progress import Progress, silent

_COMMENT = "# Recorded by `specplan check record`; answer.json holds what it was planned as.\n"


def record(problem: ProblemLike, out: Path, progress: Progress = silent) -> Answer:
    """Write a record of a problem; what it leaves to be measured is measured or read as ever.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        out: the folder to write, in place of an earlier record.
        progress: told of everything that takes long.

    Returns:
        The answer that was recorded.

    Raises:
        UsageError: the problem is broken, `out` holds something else, or without the weights
            the problem is planned for otherwise.
    """
    from specplan.gathering import find
    from specplan.result import Result

    checked = as_problem(problem)
    check_destination(out, ANSWER, "record")
    found = find(checked, progress)
    facts = found.facts
    with staged(out.resolve()) as folder:
        data = _store(facts, folder)
        write_atomic(folder / PROBLEM, _COMMENT + yaml.safe_dump(data, sort_keys=False))
        answer = answer_of(str(folder / PROBLEM))
        _check_same(Result(found), answer, out)
        write_answer(folder, answer)
    return answer


def _store(facts: ProblemFacts, folder: Path) -> dict[str, Any]:
    """Write what the problem needs below `folder`, and return the problem that names it."""
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
    """The device as the recorded problem names it, its file beside it."""
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
    """Without its weights a model goes by another digest: write that one."""
    text = read_text(path)
    changed = text
    for old, new in digests.items():
        changed = changed.replace(f'"{old}"', f'"{new}"')
    if changed != text:
        write_atomic(path, changed)


def _check_same(planned: Any, answer: Answer, out: Path) -> None:
    """Refuse a record that is planned for otherwise than the problem itself."""
    told = difference(described(planned), answer)
    if told:
        raise UsageError(
            f"without weights the problem is planned for otherwise:\n{told}\n",
            where=str(out),
            remedy="State every model's dtype in the problem, or record another problem.",
        )
