"""The bundle of a result: its plan, its report, and what is needed to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from specplan.backends.bundle import Bundle, load_bundle, write_bundle
from specplan.backends.checkpoint_copies import copied_path
from specplan.backends.manifest import MANIFEST
from specplan.backends.registry import INTERPRETER
from specplan.ir.errors import UsageError
from specplan.ir.files import check_destination
from specplan.problems import check_runs, compilers_of, portable

if TYPE_CHECKING:
    from specplan.cost_models.quality.certificate import Certificate
    from specplan.planner.problem.schema import Problem
    from specplan.result import Result


def open_bundle(bundle: Bundle | Path | str) -> Bundle:
    """A bundle, read where a folder is given, whose problem has the form of one.

    Returns:
        The bundle; what its problem leaves out is there, as it is by default.

    Raises:
        UsageError: it is no bundle, or a file has changed; or its problem lacks a key or has one of
            another type, which is named.
    """
    from specplan.planner.problem.errors import Origin
    from specplan.planner.problem.loading import problem_form

    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    path = opened.folder / "problem.json"
    try:
        problem = problem_form(opened.problem, Origin(str(path)))
    except UsageError as error:
        raise UsageError(
            f"the bundle's problem is damaged: {error.what}",
            where=error.where,
            remedy="Restore the file, or run `specplan optimize` again.",
        ) from None
    return replace(opened, problem=problem.model_dump(mode="json"))


def check_out(problem: Problem, out: Path | str | None, *, copy_weights: bool = False) -> None:
    """Refuse, before anything is measured, a bundle that could not be written.

    Raises:
        UsageError: the problem's plan is not run here, the folder holds something else, or the
            very checkpoints that the problem names; or weights are to be copied and there is none.
    """
    if out is None and copy_weights:
        raise UsageError(
            "weights are copied into a bundle, and none is written",
            where="--copy-weights",
            remedy="Give --out DIR too.",
        )
    if out is not None:
        check_runs(problem)
        check_destination(Path(out), MANIFEST, "bundle")
        home = Path(out).resolve()
        for role, model in problem.models.by_role.items():
            if model.path.resolve().is_relative_to(home):
                raise UsageError(
                    f"the bundle would replace the checkpoint of {role}, which lies in it",
                    where=str(out),
                    remedy="Write the bundle to another folder.",
                )


def write_result(
    result: Result,
    folder: Path,
    more: Mapping[str, Any] = MappingProxyType({}),
    *,
    copy_weights: bool = False,
    certified: Certificate | None = None,
) -> Bundle:
    """Write the bundle of a result.

    Args:
        result: what was chosen, and from what.
        folder: of the bundle.
        more: further parts of its report, JSON values.
        copy_weights: the bundle gets copies of the checkpoints that its plan runs, and its problem
            names these.
        certified: of a person's plan; default that of the search.

    Raises:
        UsageError: `folder` holds something that is not a bundle.
    """
    from specplan.measure.machine import versions
    from specplan.planner.quality.front import certificate

    problem = result.problem
    models = {
        name: (model.path, model.dtype)
        for name, model in problem.models.by_role.items()
        if name in result.plan.models_run
    }
    data = portable(problem, folder.resolve())
    if copy_weights:
        named = {"target": data["models"]["target"]}
        named |= {draft["name"]: draft for draft in data["models"]["drafts"]}
        for name in models:
            named[name]["path"] = copied_path(name, models[name][0])
    report = result.search.as_dict() | {"problem": data, "explanation": result.explanation()}
    return write_bundle(
        folder,
        plan=result.plan,
        problem=data,
        report={**report, **more},
        models=models,
        backend=INTERPRETER if compilers_of(problem) else problem.backend,
        versions=versions(),
        copy_weights=copy_weights,
        certificate=certified
        or certificate(result.search.facts, result.candidates, result.search.chosen),
    )
