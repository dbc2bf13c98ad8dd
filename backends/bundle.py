"""A bundle: one folder with the plan, the report, the models by hash, and a sum of every file.

    plan.txt        the plan as text
    plan.json       the same plan, versioned JSON
    problem.json    the problem it answers
    report.json     every candidate with its price or its refusal
    executables/    compiled rounds, where `specplan compile` made some
    manifest.json   versions, backend, model references, sha256 of the other files

The sums tell that nothing has changed since the bundle was written. They do not tell who wrote it:
a bundle with executables holds native code, and is as trustworthy as where it came from.

A bundle is written whole or not at all, and refused when a byte of it has changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from specplan.backends.executables import FOLDER, Executables
from specplan.ir.errors import UsageError
from specplan.ir.files import (
    model_digest,
    read_json,
    read_text,
    sha256_file,
    write_atomic,
    write_json_atomic,
)
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
        executables: the compiled rounds; None where there are none.
    """

    folder: Path
    plan: Plan
    problem: dict[str, Any]
    report: dict[str, Any]
    models: dict[str, ModelReference]
    backend: str
    versions: dict[str, str]
    executables: Executables | None = None

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
            "executables": None,
        }
        _write_manifest(staging, manifest)
    return load_bundle(folder)


def write_executables(bundle: Bundle, executables: Executables, compiled: Path) -> Bundle:
    """The bundle with compiled rounds, in place of those that it had.

    Args:
        bundle: as read back.
        executables: what the rounds are.
        compiled: folder of their folders; only those of shapes that a compiled round is fastest
            for need be there.
    """
    manifest = read_json(bundle.folder / MANIFEST, "bundle manifest")
    with staged(bundle.folder) as staging:
        for name in _FILES:
            shutil.copyfile(bundle.folder / name, staging / name)
        shutil.copytree(compiled, staging / FOLDER)
        _write_manifest(staging, manifest | {"executables": executables.as_dict()})
    return load_bundle(bundle.folder)


def _write_manifest(staging: Path, manifest: Mapping[str, Any]) -> None:
    """The manifest with the sums of all files that are there."""
    files = sorted(path for path in staging.rglob("*") if path.is_file())
    sums = {path.relative_to(staging).as_posix(): sha256_file(path) for path in files}
    write_json_atomic(staging / MANIFEST, {**manifest, "files": sums})


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
    manifest = _read_manifest(folder / MANIFEST)
    _check_files(folder, manifest.files)
    plan = check_plan(plan_from_json(read_json(folder / "plan.json", "plan")))
    if parse_plan(read_text(folder / "plan.txt", "plan")) != plan:
        raise UsageError("plan.txt and plan.json are not the same plan", where=str(folder))
    return Bundle(
        folder=folder,
        plan=plan,
        problem=_read_object(folder / "problem.json", "problem"),
        report=_read_object(folder / "report.json", "report"),
        models=manifest.models,
        backend=manifest.backend,
        versions=manifest.versions,
        executables=manifest.executables,
    )


@dataclass(frozen=True)
class _Manifest:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    schema_version: int
    kind: Literal["bundle"]
    backend: str
    versions: dict[str, str]
    models: dict[str, ModelReference]
    files: dict[str, str]
    executables: Executables | None = None


@cache
def _manifest_reader() -> TypeAdapter[_Manifest]:
    return TypeAdapter(_Manifest)


def _read_manifest(path: Path) -> _Manifest:
    data = read_json(path, "bundle manifest")
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"the bundle's version is not {SCHEMA_VERSION}",
            where=str(path),
            remedy="Run `specplan optimize` again with this version of specplan.",
        )
    try:
        return _manifest_reader().validate_python(data)
    except ValidationError as error:
        (first, *_) = error.errors()
        key = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"the manifest is damaged: {key}: {first['msg']}",
            where=str(path),
            remedy="Restore it, or run `specplan optimize` again.",
        ) from None


def _read_object(path: Path, what: str) -> dict[str, Any]:
    data = read_json(path, what)
    if not isinstance(data, dict):
        raise UsageError(f"the {what} is no JSON object", where=str(path))
    return data


def _check_files(folder: Path, sums: Mapping[str, str]) -> None:
    if not set(_FILES) <= set(sums):
        raise UsageError("the manifest does not list the bundle's files", where=str(folder))
    foreign = [name for name in set(sums) - set(_FILES) if not _is_executable(name)]
    if foreign:
        raise UsageError(
            f"the manifest lists a file that no bundle has: {min(foreign)}", where=str(folder)
        )
    held = {path.relative_to(folder).as_posix() for path in (folder / FOLDER).rglob("*.*")}
    if not held <= set(sums):
        raise UsageError(
            f"the manifest does not list this file: {min(held - set(sums))}", where=str(folder)
        )
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


def _is_executable(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) == 3 and parts[0] == FOLDER and ".." not in parts
