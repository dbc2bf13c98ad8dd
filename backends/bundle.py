"""A bundle: one folder with the plan, the report, the models by hash, and a sum of every file.

    plan.txt        the plan as text
    plan.json       the same plan, versioned JSON
    problem.json    the problem it answers
    report.json     every candidate with its price or its refusal
    manifest.json   versions, backend, model references, sha256 of the other files

A bundle is written whole or not at all, and refused when a byte of it has changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import model_digest, read_json, sha256_file, write_atomic, write_json_atomic
from specplan.ir.folders import check_destination, staged
from specplan.ir.json_form import plan_from_json, plan_to_json
from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan
from specplan.ir.verify import check_plan

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
_FILES = ("plan.txt", "plan.json", "problem.json", "report.json")


@dataclass(frozen=True, slots=True)
class ModelReference:
    """Where a model's checkpoint is, and which one it must be.

    Attributes:
        path: the checkpoint's folder, relative to the bundle unless absolute.
        digest: its identity (`specplan.ir.files.model_digest`).
        dtype: number type to load it in, or "auto".
    """

    path: str
    digest: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle as read back.

    Attributes:
        folder: where it is.
        plan: the verified plan.
        problem: the problem, as JSON data.
        report: the search's report, as JSON data.
        models: by the names the plan gives them.
        backend: what compiles the plan.
        versions: of the software that wrote it.
    """

    folder: Path
    plan: Plan
    problem: dict[str, Any]
    report: dict[str, Any]
    models: dict[str, ModelReference]
    backend: str
    versions: dict[str, str]

    def model_folder(self, name: str) -> Path:
        """Absolute folder of a model's checkpoint."""
        return (self.folder / self.models[name].path).resolve()

    def check_models(self) -> None:
        """Refuse checkpoints that are missing or are not those the plan was made for.

        Raises:
            UsageError: names the model and its folder.
        """
        for name, reference in self.models.items():
            folder = self.model_folder(name)
            if not (folder / "config.json").is_file():
                raise UsageError(
                    f"the checkpoint of model {name} is missing",
                    where=str(folder),
                    remedy="Put it back, or run `specplan optimize` again.",
                )
            if model_digest(folder) != reference.digest:
                raise UsageError(
                    f"the checkpoint of model {name} has changed since the plan was made",
                    where=str(folder),
                    remedy="Restore it, or run `specplan optimize` again.",
                )


def write_bundle(
    folder: Path,
    *,
    plan: Plan,
    problem: Mapping[str, Any],
    report: Mapping[str, Any],
    models: Mapping[str, tuple[Path, str]],
    backend: str,
    versions: Mapping[str, str],
) -> Bundle:
    """Write a bundle, in place of an earlier one at the same place.

    Args:
        folder: the bundle's folder; its parents are made.
        plan: a verified plan.
        problem: JSON data.
        report: JSON data.
        models: (checkpoint folder, dtype) by the names the plan gives them.
        backend: name of the backend that will compile the plan.
        versions: of the software at work.

    Raises:
        UsageError: `folder` holds something that is not a bundle.
    """
    folder = folder.resolve()
    check_destination(folder, MANIFEST, "bundle")
    references = {
        name: ModelReference(os.path.relpath(path, folder), model_digest(path), dtype)
        for name, (path, dtype) in models.items()
    }
    with staged(folder) as staging:
        write_atomic(staging / "plan.txt", print_plan(plan))
        write_json_atomic(staging / "plan.json", plan_to_json(plan))
        write_json_atomic(staging / "problem.json", dict(problem))
        write_json_atomic(staging / "report.json", dict(report))
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "kind": "bundle",
            "backend": backend,
            "versions": dict(versions),
            "models": {name: asdict(reference) for name, reference in references.items()},
            "files": {name: sha256_file(staging / name) for name in _FILES},
        }
        write_json_atomic(staging / MANIFEST, manifest)
    return load_bundle(folder)


def load_bundle(folder: Path | str) -> Bundle:
    """Read a bundle and check every byte of it.

    Raises:
        UsageError: the folder is no bundle, or a file is missing or changed; says which.
    """
    folder = Path(folder).resolve()
    if not (folder / MANIFEST).is_file():
        raise UsageError(
            "this is not a bundle: it has no manifest.json",
            where=str(folder),
            remedy="Make one with `specplan optimize PROBLEM.yaml --out DIR`.",
        )
    manifest = read_json(folder / MANIFEST, "bundle manifest")
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"the bundle's version is not {SCHEMA_VERSION}",
            where=str(folder / MANIFEST),
            remedy="Run `specplan optimize` again with this version of specplan.",
        )
    _check_files(folder, manifest)
    plan = check_plan(plan_from_json(read_json(folder / "plan.json", "plan")))
    if parse_plan((folder / "plan.txt").read_text(encoding="utf-8")) != plan:
        raise UsageError("plan.txt and plan.json are not the same plan", where=str(folder))
    return Bundle(
        folder=folder,
        plan=plan,
        problem=read_json(folder / "problem.json", "problem"),
        report=read_json(folder / "report.json", "report"),
        models={name: ModelReference(**entry) for name, entry in manifest["models"].items()},
        backend=manifest["backend"],
        versions=manifest["versions"],
    )


def _check_files(folder: Path, manifest: dict[str, Any]) -> None:
    sums = manifest.get("files")
    if not isinstance(sums, dict) or set(sums) != set(_FILES):
        raise UsageError("the manifest does not list the bundle's files", where=str(folder))
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            raise UsageError(
                "the bundle lacks this file",
                where=str(path),
                remedy="Restore it, or run `specplan optimize` again.",
            )
        if sha256_file(path) != expected:
            raise UsageError(
                "the file's bytes have changed since the bundle was written",
                where=str(path),
                remedy="Restore it, or run `specplan optimize` again.",
            )
