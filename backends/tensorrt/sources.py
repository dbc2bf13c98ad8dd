"""A folder from which TensorRT builds engines: rounds as ONNX, their weights, a script.

NAME.onnx             a round for one shape of batches, opset 23
weights.safetensors   the weights of all rounds, which the models point into
build.sh              makes NAME.engine of each, on the kind of machine that is to run it, with
                      trtexec, or by build_engines.py with the Python package tensorrt
sources.json          inputs and outputs of each round, and the sha256 of every file
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from specplan.backends.onnx_export.exporting import export_round
from specplan.backends.static.buckets import Bucket
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.identity import named_weights
from specplan.backends.static.interface import SLOTS
from specplan.backends.static.packages import package_name
from specplan.backends.tensorrt.legalise import legalise
from specplan.backends.tensorrt.operators import VERSION, require_legal
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.files import sha256_file, write_atomic, write_json_atomic
from specplan.ir.plan import Plan
from specplan.runtime.generate import generate
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request

SCRIPT, WEIGHTS, INDEX = "build.sh", "weights.safetensors", "sources.json"
IN_PYTHON = "build_engines.py"
SCHEMA_VERSION = 1
_LEAST_SLOTS = 2
"""Cache slots that a round attends to at least: exports know no dimension of 1 that may grow."""


@dataclass(frozen=True)
class RoundSource:
    """One round for one shape of batches.

    Attributes:
        name: of its files.
        batch: rows.
        text: tokens that each row has room for.
        inputs: name, number type and shape of each; "slots" is as long as the slots attended to.
        outputs: the same; one named like an input with ".after" is what becomes of it.
        slots: least, usual and most slots attended to: the optimisation profile.
    """

    name: str
    batch: int
    text: int
    inputs: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    outputs: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    slots: tuple[int, int, int]


def write_sources(
    plan: Plan,
    models: Mapping[str, Module],
    batches: Mapping[Bucket, Sequence[Request]],
    folder: Path,
) -> tuple[RoundSource, ...]:
    """Write the folder.

    Args:
        plan: a verified plan that backends which compile rounds can run.
        models: by the names the plan gives them.
        batches: for each shape, requests that fill it and sample as the workload does.
        folder: exists and is empty.

    Raises:
        MissingCapabilityError: TensorRT does not take a round; names the operator and the op of
            the plan that it comes from. Nothing was built.
    """
    made: dict[str, tuple[Any, RoundSource]] = {}

    def export(graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> RoundGraph:
        exported = export_round(graph, tensors)
        legalise(exported.model)
        name = package_name(graph, bucket)
        require_legal(exported.model, name)
        made[name] = exported.model, _described(name, bucket, exported.model)
        return graph

    executable = StaticExecutable(plan, models, export, list(batches))
    for bucket, requests in batches.items():
        generate(executable, requests, capacity=bucket.text)
    _write(folder, made, named_weights(models))
    return tuple(source for _, source in made.values())


def build_engines(folder: Path) -> bool:
    """Build the engines where trtexec, or the Python package `tensorrt`, is there.

    Returns:
        Whether one of them was there.

    Raises:
        MissingCapabilityError: building failed; with the end of the output.
    """
    if shutil.which("trtexec") is None and importlib.util.find_spec("tensorrt") is None:
        return False
    done = subprocess.run(
        ["sh", str(folder / SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHON": sys.executable},
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise MissingCapabilityError(
            f"no engines were built: {last}",
            where=str(folder),
            remedy=f"Run {SCRIPT} there to see its whole output.",
        )
    return True


def _described(name: str, bucket: Bucket, model: Any) -> RoundSource:
    shapes = {value.name: value for value in model.graph.inputs}
    positions = next(value for key, value in shapes.items() if key.endswith(".positions"))
    most = int(positions.shape[1]) - 1  # the last slot is that of dead writes
    return RoundSource(
        name=name,
        batch=bucket.batch,
        text=bucket.text,
        inputs=tuple(map(_words, model.graph.inputs)),
        outputs=tuple(map(_words, model.graph.outputs)),
        slots=(_LEAST_SLOTS, max(3 * most // 4, _LEAST_SLOTS), most),
    )


def _words(value: Any) -> tuple[str, str, tuple[int | str, ...]]:
    shape = () if value.shape is None else value.shape
    sizes = tuple(size if isinstance(size, int) else SLOTS for size in shape)
    return value.name, value.dtype.name.lower(), sizes


def _write(
    folder: Path, made: Mapping[str, tuple[Any, RoundSource]], known: Mapping[str, Tensor]
) -> None:
    import onnx_ir
    from safetensors.torch import save_file

    named = sorted({name for model, _ in made.values() for name in _elsewhere(model)})
    # a copy of each: tied weights share memory, which the format does not take
    save_file({name: known[name].detach().cpu().clone() for name in named}, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)
    places = _places(folder / WEIGHTS)
    for name, (model, _) in made.items():
        for weight in _elsewhere(model):
            value = model.graph.initializers[weight]
            offset, length = places[weight]
            value.const_value = onnx_ir.ExternalTensor(
                WEIGHTS, offset, length, value.const_value.dtype,
                shape=value.const_value.shape, name=weight, base_dir=folder,
            )  # fmt: skip
        onnx_ir.save(model, folder / f"{name}.onnx")
    sources = [source for _, source in made.values()]
    write_atomic(folder / SCRIPT, build_script(sources))
    (folder / SCRIPT).chmod(0o755)
    write_atomic(folder / IN_PYTHON, Path(__file__).with_name(IN_PYTHON).read_bytes())
    files = {path.name: sha256_file(path) for path in sorted(folder.iterdir())}
    index = {
        "schema_version": SCHEMA_VERSION,
        "kind": "tensorrt_sources",
        "checked_against": f"ONNX operators of TensorRT {VERSION}",
        "rounds": [asdict(source) for source in sources],
        "files": files,
    }
    write_json_atomic(folder / INDEX, index)


def _elsewhere(model: Any) -> list[str]:
    """Names of the weights whose bytes the model does not hold."""
    import onnx_ir

    values = model.graph.initializers.items()
    return [name for name, v in values if isinstance(v.const_value, onnx_ir.ExternalTensor)]


def _places(path: Path) -> dict[str, tuple[int, int]]:
    """Offset and length of each tensor of a safetensors file, bytes."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    spans = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: (8 + size + start, stop - start) for name, (start, stop) in spans.items()}


def build_script(sources: Sequence[RoundSource]) -> str:
    """The shell script that builds one engine per round.

    Numbers keep the types that the model gives them (`--stronglyTyped`): no layer is quietly run in
    another precision.
    """
    lines = [
        "#!/bin/sh",
        "# Builds one engine per round, on the kind of GPU that is to run it.",
        f"# The models were checked against the ONNX operators of TensorRT {VERSION}.",
        "set -eu",
        'cd "$(dirname "$0")"',
        "if ! command -v trtexec >/dev/null; then",
        f'  exec "${{PYTHON:-python3}}" {IN_PYTHON}',
        "fi",
    ]
    for source in sources:
        name = shlex.quote(source.name)
        least, usual, most = (f"{SLOTS}:{count}" for count in source.slots)
        lines.append(
            f"trtexec --onnx={name}.onnx --saveEngine={name}.engine --stronglyTyped "
            f"--minShapes={least} --optShapes={usual} --maxShapes={most} --skipInference"
        )
    return "\n".join(lines) + "\n"
