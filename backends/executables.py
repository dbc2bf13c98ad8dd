"""What a bundle says of the compiled rounds it holds: their shapes, and where they run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from specplan.ir.capabilities import backend_name
from specplan.ir.errors import MissingCapabilityError

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
            f"{name} {wanted} (here {found or 'missing'})"
            for name, wanted, found in (
                ("system", self.system, here.system),
                ("processor", self.architecture, here.architecture),
                ("torch", self.torch, here.torch),
                ("onnxruntime", self.onnxruntime, here.onnxruntime),
            )
            if wanted and wanted != found
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

    def __post_init__(self) -> None:
        seconds = {backend_name(name): value for name, value in self.seconds.items()}
        object.__setattr__(self, "backend", backend_name(self.backend))
        object.__setattr__(self, "seconds", seconds)


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
