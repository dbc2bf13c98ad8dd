"""The manifest of a bundle, and the check that the folder has exactly the files that it lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from specplan.backends.kernels.variants import INDEX
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import known_sha256, read_document, sha256_file

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
FILES = ("plan.txt", "plan.json", "problem.json", "report.json")
"""What every bundle has beside its manifest."""
CERTIFICATE = "certificate.json"
"""What a bundle has too whose plan promises a bounded loss."""
KERNELS = "kernels"
"""Where a bundle keeps GPU kernels, as `specplan kernels build` writes them."""
MODELS = "models"
"""Where a bundle keeps copied checkpoints, each in a folder of its model's name."""
FOLDER = "executables"
"""Where a bundle keeps compiled rounds, each in a folder of its own."""
_INSTRUCTIONS = ("NO AVX", "DEFAULT", "AVX2", "AVX512")
"""x86 instruction sets as torch names them; each holds those before it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What native code depends on.

    Attributes:
        system: operating system.
        architecture: of the processor.
        instructions: widest vector instructions that compilers use there, as torch names them.
        torch: major and minor version of torch, whose runtime the code calls.
        onnxruntime: the same of ONNX Runtime; empty where nothing needs it.
        features: instruction sets that the compiler was free to use, as Linux names them; none
            where nothing was compiled to native code. They say more than `instructions`: code for
            the machine that it is compiled on may multiply by AMX, or round to bfloat16.
    """

    system: str
    architecture: str
    instructions: str
    torch: str
    onnxruntime: str = ""
    features: tuple[str, ...] = ()

    def require(self, here: Machine, where: str) -> None:
        """Refuse a machine that code made for this one does not run on.

        Raises:
            MissingCapabilityError: says in what they differ.
        """
        differing = [
            f"{name} {wanted} (here {actual or 'missing'})"
            for name, wanted, actual in (
                ("system", self.system, here.system),
                ("processor", self.architecture, here.architecture),
                ("torch", self.torch, here.torch),
                ("onnxruntime", self.onnxruntime, here.onnxruntime),
            )
            if wanted and wanted != actual
        ]
        if self.instructions and not _includes(here.instructions, self.instructions):
            differing.append(f"instructions {self.instructions} (here {here.instructions})")
        lacking = [name for name in self.features if name not in here.features]
        if lacking:
            differing.append(f"processor features {' '.join(lacking)} (missing here)")
        if differing:
            raise MissingCapabilityError(
                f"the bundle's executables were compiled for {', '.join(differing)}",
                where=where,
                remedy="Compile them here: `specplan compile DIR`.",
            )


def _includes(here: str, wanted: str) -> bool:
    if here == wanted:
        return True
    known = here in _INSTRUCTIONS and wanted in _INSTRUCTIONS
    return known and _INSTRUCTIONS.index(wanted) <= _INSTRUCTIONS.index(here)


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of batches, and what rounds of it took.

    Attributes:
        batch: rows.
        text: tokens that each row has room for.
        backend: what runs it: the fastest of those measured.
        seconds: per round, by backend; the median of interleaved runs.
    """

    batch: int
    text: int
    backend: str
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Executables:
    """The compiled rounds of a bundle.

    Attributes:
        machine: where they run.
        sampling: how batches may sample: `greedy`, `sampled` or `truncated`.
        shapes: that were compiled, the smallest first.
        notes: what did not compile, and why.
    """

    machine: Machine
    sampling: str
    shapes: tuple[Shape, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ModelReference:
    """Where a model's checkpoint is, and which one it must be.

    Attributes:
        path: the checkpoint's folder, relative to the bundle unless absolute; within it where the
            checkpoint was copied.
        digest: its identity (`specplan.ir.files.model_digest`).
        dtype: number type to load it in, or "auto".
    """

    path: str
    digest: str
    dtype: str


@dataclass(frozen=True)
class Manifest:
    """What a manifest holds.

    Attributes:
        schema_version: of the format.
        kind: always the same.
        backend: what compiles the plan.
        versions: of the software that wrote it.
        models: by the names the plan gives them.
        files: sha256 of every other file, by its path in the folder.
        executables: the compiled rounds; None where there are none.
        kernels: architectures that it holds GPU kernels for; None where there are none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    schema_version: int
    kind: Literal["bundle"]
    backend: str
    versions: dict[str, str]
    models: dict[str, ModelReference]
    files: dict[str, str]
    executables: Executables | None = None
    kernels: tuple[str, ...] | None = None


@cache
def _manifest_reader() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        UsageError: it is none, or of another version; says what is wrong with it.
    """
    remedy = "Run `specplan optimize` again with this version of specplan."
    data = read_document(path, "bundle manifest", SCHEMA_VERSION, remedy)
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


def check_files(folder: Path, sums: Mapping[str, str]) -> None:
    """Refuse a folder that is not byte for byte what its manifest says.

    Raises:
        UsageError: names the file.
    """
    if not set(FILES) <= set(sums):
        raise UsageError("the manifest does not list the bundle's files", where=str(folder))
    foreign = [name for name in set(sums) - {*FILES, CERTIFICATE} if not _is_built(name)]
    if foreign:
        raise UsageError(
            f"the manifest lists a file that no bundle has: {min(foreign)}", where=str(folder)
        )
    present = {
        path.relative_to(folder).as_posix()
        for built in (FOLDER, KERNELS, MODELS)
        for path in (folder / built).rglob("*")
        if not path.is_dir()
    }
    if not present <= set(sums):
        raise UsageError(
            f"the manifest does not list this file: {min(present - set(sums))}", where=str(folder)
        )
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            raise UsageError(
                "the bundle lacks this file",
                where=str(path),
                remedy="Restore it, or run `specplan optimize` again.",
            )
        sha256 = known_sha256 if name.startswith(f"{MODELS}/") else sha256_file
        if sha256(path) != expected:
            raise UsageError(
                "the file's bytes have changed since the bundle was written",
                where=str(path),
                remedy="Restore it, or run `specplan optimize` again.",
            )


def _is_built(name: str) -> bool:
    """Whether it is a file of a compiled round, of built kernels or of a copied checkpoint."""
    parts = PurePosixPath(name).parts
    if parts == (KERNELS, INDEX):
        return True
    return len(parts) == 3 and parts[0] in (FOLDER, KERNELS, MODELS) and ".." not in parts
