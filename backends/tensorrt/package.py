"""A round compiled by torch-tensorrt, in files, without weights and without pickle.

round.json           what it reads and writes, its profile, and the calls around its engines
engine.N.plan        an engine of TensorRT
tables.safetensors   constants of the calls around engines
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, fx

from specplan.backends.compiled_files import damaged, read_tables
from specplan.backends.static.identity import named_weights
from specplan.backends.static.session import Program
from specplan.backends.tensorrt.glue import Glue, Runner, glue_of
from specplan.backends.tensorrt.lowering import Lowered
from specplan.ir.files import read_json, write_json_atomic
from specplan.runtime.models.modules import Module

CODE, TABLES = "round.json", "tables.safetensors"


@dataclass(frozen=True)
class Engine:
    """An engine's file, and the names of its bindings in their order."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    file: str
    inputs: list[str]
    outputs: list[str]


@dataclass(frozen=True)
class Stored:
    """A compiled round; names are as in `Lowered`, slots as in `Profile`."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    tensors: list[str]
    weights: list[str]
    reads: list[str]
    writes: list[str]
    slots: list[int]
    engines: list[Engine]
    glue: Glue


def write_package(module: fx.GraphModule, lowered: Lowered, folder: Path) -> None:
    """Store a compiled round.

    Args:
        module: a graph whose submodules are engines: with `serialized_engine` and the names of
            their bindings, as torch-tensorrt has them.
        lowered: what it was made of.
        folder: exists; gets the files.
    """
    from safetensors.torch import save_file

    parts: dict[str, Any] = dict(module.named_children())
    named = {name: part for name, part in parts.items() if hasattr(part, "serialized_engine")}
    engines = []
    for place, part in enumerate(named.values()):
        one = Engine(
            f"engine.{place}.plan", list(part.input_binding_names), list(part.output_binding_names)
        )
        (folder / one.file).write_bytes(part.serialized_engine)
        engines.append(one)
    glue, constants = glue_of(module, list(named))
    profile = lowered.profile
    stored = Stored(
        tensors=list(lowered.tensors),
        weights=list(lowered.weights),
        reads=list(lowered.reads),
        writes=list(lowered.writes),
        slots=[profile.least, profile.usual, profile.most],
        engines=engines,
        glue=glue,
    )
    write_json_atomic(folder / CODE, TypeAdapter(Stored).dump_python(stored))
    tables = {name: value.cpu().contiguous().clone() for name, value in constants.items()}
    save_file(tables, folder / TABLES)


def read_package(folder: Path) -> Stored:
    """What `write_package` has stored.

    Raises:
        UsageError: a file is damaged.
    """
    data = read_json(folder / CODE, "description of a compiled round")
    try:
        stored = TypeAdapter(Stored).validate_python(data)
    except ValidationError as error:
        raise damaged("this describes no compiled round", folder / CODE) from error
    for one in stored.engines:
        if Path(one.file).name != one.file or not (folder / one.file).is_file():
            raise damaged(f"there is no engine {one.file}", folder / CODE)
    return stored


def program_of(
    stored: Stored,
    engines: Sequence[Callable[..., Any]],
    folder: Path,
    models: Mapping[str, Module],
    device: torch.device,
) -> Program:
    """A round that runs: from the tensors of its interface to its report.

    Args:
        stored: the round.
        engines: what runs each of its engines.
        folder: of its tables.
        models: whose weights it reads.
        device: of the tensors.

    Raises:
        UsageError: the models lack a weight, or the steps are none.
    """
    known = named_weights(models)
    unknown = {*stored.reads, *stored.writes} - set(stored.tensors)
    if unknown:
        raise damaged(f"the round has no tensor {min(unknown)}", folder / CODE)
    lacking = set(stored.weights) - set(known)
    if lacking:
        raise damaged(f"the models have no weight {min(lacking)}", folder / CODE)
    tables = {name: one.to(device) for name, one in read_tables(folder / TABLES).items()}
    try:
        run = Runner(stored.glue, engines, tables, device)
    except (ValueError, TypeError, AttributeError) as error:
        raise damaged(f"these are no steps of a compiled round ({error})", folder / CODE) from error
    return _Loaded(stored, run, [known[name] for name in stored.weights])


class _Loaded:
    """A round, its weights, and which tensors it reads and writes."""

    def __init__(self, stored: Stored, run: Runner, weights: Sequence[Tensor]) -> None:
        places = {name: place for place, name in enumerate(stored.tensors)}
        self._run, self._weights = run, list(weights)
        self._reads = [places[name] for name in stored.reads]
        self._writes = [places[name] for name in stored.writes]

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Run the round; what it changes is copied into the tensors that it was given."""
        report, *after = self._run(*self._weights, *(tensors[place] for place in self._reads))
        for place, new in zip(self._writes, after, strict=True):
            tensors[place].copy_(new)
        assert isinstance(report, Tensor)
        return report
