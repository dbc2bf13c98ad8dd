"""A bundle: one folder with the plan, the report, the models by hash, and a sum of every file.

    plan.txt        the plan as text
    plan.json       the same plan, versioned JSON
    problem.json    the problem it answers
    report.json     every candidate with its price or its refusal
    certificate.json  what the plan may lose, where its output is not the target's own
    executables/    compiled rounds, where `specplan compile` made some
    kernels/        GPU kernels, where `specplan compile --cubins` made some
    models/         checkpoints, where they were copied
    manifest.json   versions, backend, model references, sha256 of the other files

The sums tell that nothing has changed since the bundle was written. They do not tell who wrote it:
a bundle with executables holds native code, and is as trustworthy as where it came from.

A bundle is written whole or not at all, and refused when a byte of it has changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from specplan.backends.checkpoint_copies import copied_path, copy_checkpoint
from specplan.backends.manifest import (
    CERTIFICATE,
    FOLDER,
    KERNELS,
    MANIFEST,
    SCHEMA_VERSION,
    Executables,
    ModelReference,
    check_files,
    read_manifest,
)
from specplan.cost_models.models.model_shape import is_gguf
from specplan.cost_models.quality.certificate import (
    Certificate,
    check_certified,
    read_certificate,
)
from specplan.ir.errors import UsageError
from specplan.ir.files import (
    check_destination,
    check_exists,
    model_digest,
    read_json,
    read_text,
    sha256_file,
    staged,
    write_atomic,
    write_json_atomic,
)
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.ir.text.json_form import plan_from_json, plan_to_json
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan


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
        kernels: architectures that it holds GPU kernels for.
        certificate: what was tested of its loss; None where it loses nothing, or nothing was.
    """

    folder: Path
    plan: Plan
    problem: dict[str, Any]
    report: dict[str, Any]
    models: dict[str, ModelReference]
    backend: str
    versions: dict[str, str]
    executables: Executables | None = None
    kernels: tuple[str, ...] = ()
    certificate: Certificate | None = None

    def __repr__(self) -> str:
        """The folder, and the rounds of the plan; `report` is long."""
        rounds = ", ".join(item.name for item in self.plan.rounds)
        return f"Bundle({str(self.folder)!r}, rounds {rounds}, backend {self.backend})"

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
            if not (folder if is_gguf(folder) else folder / "config.json").is_file():
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
    copy_weights: bool = False,
    certificate: Certificate | None = None,
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
        copy_weights: the bundle gets the checkpoints too, and runs from these copies.
        certificate: of what the plan may lose.

    Raises:
        UsageError: `folder` holds something that is not a bundle, or a checkpoint is missing, or
            the plan promises a bounded loss that the certificate does not show.
    """
    folder = folder.resolve()
    check_destination(folder, MANIFEST, "bundle")
    references = {
        name: ModelReference(
            copied_path(name, path) if copy_weights else os.path.relpath(path, folder),
            model_digest(path),
            dtype,
        )
        for name, (path, dtype) in models.items()
    }
    digests = {name: reference.digest for name, reference in references.items()}
    check_certified(plan, certificate, digests, f"plan {plan.name}")
    with staged(folder) as staging:
        if copy_weights:
            for name, (path, _) in models.items():
                copy_checkpoint(path, staging / copied_path(name, path))
        _write_texts(staging, plan, problem, report, certificate)
        manifest = {
            "schema_version": SCHEMA_VERSION,
            "kind": "bundle",
            "backend": backend,
            "versions": dict(versions),
            "models": {name: asdict(reference) for name, reference in references.items()},
            "executables": None,
            "kernels": None,
        }
        _write_manifest(staging, manifest)
    return load_bundle(folder)


def _write_texts(
    staging: Path,
    plan: Plan,
    problem: Mapping[str, Any],
    report: Mapping[str, Any],
    certificate: Certificate | None,
) -> None:
    """The plan in both forms, its problem and report, and what certifies it."""
    write_atomic(staging / "plan.txt", print_plan(plan))
    write_json_atomic(staging / "plan.json", plan_to_json(plan))
    write_json_atomic(staging / "problem.json", dict(problem))
    write_json_atomic(staging / "report.json", dict(report))
    if certificate is not None:
        certificate.save(staging / CERTIFICATE)


def write_executables(bundle: Bundle, executables: Executables, compiled: Path) -> Bundle:
    """The bundle with compiled rounds, in place of those that it had.

    Args:
        bundle: as read back.
        executables: what the rounds are.
        compiled: folder of their folders; only those of shapes that a compiled round is fastest
            for need be there.
    """
    return _with(bundle, FOLDER, compiled, {"executables": executables.as_dict()})


def write_kernels(bundle: Bundle, architectures: Sequence[str], built: Path) -> Bundle:
    """The bundle with GPU kernels, in place of those that it had.

    Args:
        bundle: as read back.
        architectures: of the kernels.
        built: folder of kernels (`specplan.backends.kernels.build.build_kernels`).
    """
    return _with(bundle, KERNELS, built, {"kernels": list(architectures)})


def _with(bundle: Bundle, name: str, made: Path, entries: Mapping[str, Any]) -> Bundle:
    """The bundle with a folder of this name and what the manifest tells of it."""
    manifest = read_json(bundle.folder / MANIFEST, "bundle manifest")
    with staged(bundle.folder) as staging:
        for file in manifest["files"]:
            if PurePosixPath(file).parts[0] != name:
                (staging / file).parent.mkdir(parents=True, exist_ok=True)
                _take_over(bundle.folder / file, staging / file)
        shutil.copytree(made, staging / name)
        _write_manifest(staging, {**manifest, **entries})
    return load_bundle(bundle.folder)


def _take_over(path: Path, out: Path) -> None:
    """The same file in another folder, without a copy where the disk allows: weights are large."""
    try:
        os.link(path, out)
    except OSError:
        shutil.copyfile(path, out)


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
    check_exists(folder)
    if not (folder / MANIFEST).is_file():
        raise UsageError(
            "this is not a bundle: it has no manifest.json",
            where=str(folder),
            remedy="Make one with `specplan optimize PROBLEM.yaml --out DIR`.",
        )
    manifest = read_manifest(folder / MANIFEST)
    check_files(folder, manifest.files)
    plan = check_plan(plan_from_json(read_json(folder / "plan.json", "plan")))
    if parse_plan(read_text(folder / "plan.txt", "plan")) != plan:
        raise UsageError("plan.txt and plan.json are not the same plan", where=str(folder))
    listed = CERTIFICATE in manifest.files
    certificate = read_certificate(folder / CERTIFICATE) if listed else None
    digests = {name: reference.digest for name, reference in manifest.models.items()}
    check_certified(plan, certificate, digests, str(folder))
    return Bundle(
        folder=folder,
        plan=plan,
        problem=_read_object(folder / "problem.json", "problem"),
        report=_read_object(folder / "report.json", "report"),
        models=manifest.models,
        backend=manifest.backend,
        versions=manifest.versions,
        executables=manifest.executables,
        kernels=manifest.kernels or (),
        certificate=certificate,
    )


def _read_object(path: Path, what: str) -> dict[str, Any]:
    data = read_json(path, what)
    if not isinstance(data, dict):
        raise UsageError(f"the {what} is not a JSON object", where=str(path))
    return data
