"""What each version of torch-tensorrt converts, as data read from its wheels; no torch.

`registries/VERSION.json` is written by `benchmarks/read_torch_tensorrt.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import stems

FOLDER = "registries"


@dataclass(frozen=True, slots=True)
class Converter:
    """One way to convert an op.

    Attributes:
        condition: what a node must meet, as the source has it; empty where any node does.
        dynamic: sizes may be known only when it runs.
        allocator: the size of its result depends on data.
        evaluates: it is computed while the engine is built.
    """

    condition: str = ""
    dynamic: bool = False
    allocator: bool = False
    evaluates: bool = False


@dataclass(frozen=True)
class Registry:
    """What one version converts.

    Attributes:
        version: of torch-tensorrt.
        tensorrt: the version of TensorRT that it is built for.
        sha256: of the wheel that was read.
        converters: by op, as graphs name it (`aten.add.Tensor`), in the order of preference.
        decomposed_by_torch: ops that torch's own decompositions rewrite, perhaps without overload.
        decomposed: ops that it rewrites by functions of its own.
        left_alone: ops that are not decomposed, whatever torch would do.
        settings: of `torch_tensorrt.dynamo.compile`, with the source of each default.
    """

    version: str
    tensorrt: str
    sha256: str
    converters: Mapping[str, tuple[Converter, ...]]
    decomposed_by_torch: frozenset[str]
    decomposed: frozenset[str]
    left_alone: frozenset[str]
    settings: Mapping[str, str]

    @property
    def unequal_lengths(self) -> bool:
        """Attention is converted where there are more keys than queries (from 2.12 on)."""
        return release_of(self.version) >= (2, 12)


def release_of(version: str) -> tuple[int, int]:
    """Major and minor part of a version such as `2.13.0+cpu`."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@cache
def versions() -> tuple[str, ...]:
    """Versions that were read, oldest first."""
    folder = resources.files(__package__).joinpath(FOLDER)
    return tuple(sorted(stems(folder, ".json"), key=release_of))


@cache
def registry_of(version: str) -> Registry:
    """What a version converts, by its major and minor part: `2.13.0`, or torch's `2.13.0+cpu`.

    Raises:
        MissingCapabilityError: this version was not read; names those that were.
    """
    for name in versions():
        if release_of(name) == release_of(version):
            return _read(name)
    raise MissingCapabilityError(
        f"specplan does not know which ops torch-tensorrt {version} converts",
        where="backend tensorrt",
        remedy=f"Install torch and torch-tensorrt of one of {', '.join(versions())}.",
    )


def _read(name: str) -> Registry:
    path = resources.files(__package__).joinpath(FOLDER, f"{name}.json")
    data = json.loads(path.read_text(encoding="utf-8"))
    converters = {
        op: tuple(
            Converter(
                row.get("if", ""),
                row.get("dynamic", False),
                row.get("allocator", False),
                row.get("evaluates", False),
            )
            for row in rows
        )
        for op, rows in data["converters"].items()
    }
    return Registry(
        version=data["version"],
        tensorrt=data["tensorrt"],
        sha256=data["sha256"],
        converters=MappingProxyType(converters),
        decomposed_by_torch=frozenset(data["decomposed_by_torch"]),
        decomposed=frozenset(data["decomposed"]),
        left_alone=frozenset(data["kept"]),
        settings=MappingProxyType(data["settings"]),
    )
