"""Small bundles that are opened and run, of a tiny model: compiled rounds, listed kernels."""

from __future__ import annotations

import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from specplan.backends.bundle import Bundle, write_bundle, write_executables, write_kernels
from specplan.backends.bundle_executable import load_models
from specplan.backends.inductor.backend import CODE, TABLES
from specplan.backends.kernels.kernel_folder import SCHEMA_VERSION, BuiltKernel, KernelIndex
from specplan.backends.kernels.variants import INDEX, acceptance, layers
from specplan.backends.machine import this_machine
from specplan.backends.manifest import Executables, Shape
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
from specplan.backends.static.buckets import Bucket, Sampling
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.identity import identity, named_weights, write_identity
from specplan.backends.static.packages import package_name
from specplan.ir.files import sha256_file, write_json_atomic
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.pairs import plain, save_pair

BUCKET = Bucket(1, 24)
REQUESTS = [Request(prompt_tokens=(7, 3, 5), max_new_tokens=5)]


def write_served(folder: Path, backend: str) -> Bundle:
    """Plain decoding by a model of two layers, and kernels.

    Args:
        folder: gets the models and the bundle.
        backend: `onnxruntime`, which compiles the round, or `inductor`: its package is sound, and
            the code in it loads nowhere.
    """
    save_pair(folder, layers=3)
    bundle = write_bundle(
        folder / "bundle",
        plan=plain(),
        problem={"schema_version": 1, "workload": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}},
        report={},
        models={"target": (folder / "draft", "float32")},
        backend="eager",
        versions={"specplan": "0"},
    )
    models = load_models(bundle)
    if backend == "onnxruntime":
        compiled = OnnxRuntimeBackend().compile(bundle.plan, models, folder / "made", [BUCKET])
        generate(compiled, REQUESTS)
    else:
        write_foreign(bundle, models, folder / "made")
    bundle = write_executables(bundle, executables_of(backend), folder / "made")
    return write_kernels(bundle, ["sm_90"], _listed(folder / "kernels"))


def write_foreign(bundle: Bundle, models: dict[str, CausalModel], folder: Path) -> None:
    """A package of `inductor` whose code is that of no machine."""
    executable = StaticExecutable(bundle.plan, models)
    graph = executable.forms("decode", Sampling.named("greedy"))[None]
    home = folder / package_name(graph, BUCKET)
    home.mkdir(parents=True)
    with zipfile.ZipFile(home / CODE, "w") as archive:
        archive.writestr("round/data/aotinductor/model/round.wrapper.so", bytes(range(256)) * 4)
        archive.writestr("round/archive_format", "pt2")
        archive.writestr("round/archive_version", "0")
    save_file({"cpu_table.0": torch.arange(6)}, home / TABLES)
    write_identity(home, identity(graph, named_weights(models)))


def executables_of(backend: str) -> Executables:
    """The one shape, run by a backend."""
    shape = Shape(BUCKET.batch, BUCKET.text, backend, {backend: 0.01})
    return Executables(replace(this_machine(), features=()), "greedy", (shape,))


def _listed(folder: Path) -> Path:
    """The kernels of its layers and one more, which nobody compiled, listed as if somebody had."""
    (folder / "sm_90").mkdir(parents=True)
    kernels = []
    for variant in (acceptance("greedy", 4), *layers("fp32")):
        path = folder / "sm_90" / f"{variant.name}.cubin"
        path.write_bytes(b"\x7fELF" + variant.name.encode())
        kernel = BuiltKernel(
            name=variant.name,
            arch="sm_90",
            function=variant.kernel,
            file=path.relative_to(folder).as_posix(),
            sha256=sha256_file(path),
            signature=list(variant.signature.items()),
            constants=dict(variant.constants),
            aligned=list(variant.aligned),
            num_warps=variant.num_warps,
            shared_bytes=0,
        )
        kernels.append(kernel)
    write_json_atomic(folder / INDEX, asdict(KernelIndex(SCHEMA_VERSION, "3.7.1", kernels)))
    return folder
