"""The tensorrt backend: rounds compiled by torch-tensorrt, from the same exported programs.

    round.json           what it reads and writes, its profile, and the calls around its engines
    engine.N.plan        an engine of TensorRT, without weights of the models
    tables.safetensors   constants of the calls around engines

Weights are inputs of the engines: those of the loaded checkpoint. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from specplan.backends.registry import missing_packages
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import SLOTS
from specplan.backends.static.packages import RoundBackend
from specplan.backends.static.session import Program
from specplan.backends.tensorrt.capabilities import CAPABILITIES
from specplan.backends.tensorrt.conversion.conditions import fails
from specplan.backends.tensorrt.conversion.registry import Registry, registry_of
from specplan.backends.tensorrt.conversion.settings import compile_settings
from specplan.backends.tensorrt.conversion.split import source_of
from specplan.backends.tensorrt.lowering import Lowered, lower_round
from specplan.backends.tensorrt.package import Engine, program_of, read_package, write_package
from specplan.ir.errors import MissingCapabilityError, SpecplanError, foreign_words
from specplan.ir.files import name_of
from specplan.runtime.models.modules import Module

EXTRA = "specplan[tensorrt]"
_WHERE = "backend tensorrt"


class TensorRtBackend(RoundBackend):
    """Compiles rounds with torch-tensorrt, on a CUDA device, for devices of its kind."""

    capabilities = CAPABILITIES

    @property
    def version(self) -> str:
        """See `RoundBackend.version`: of torch-tensorrt and of TensorRT."""
        return " ".join(filter(None, map(_version, ("torch-tensorrt", "tensorrt"))))

    def available(self) -> str | None:
        """None when torch-tensorrt, TensorRT and a CUDA device are here, else what is missing."""
        absent = [name for name in ("torch_tensorrt", "tensorrt") if find_spec(name) is None]
        if absent:
            advice = f"needs {', '.join(absent)}. Install it with: pip install '{EXTRA}'"
            return missing_packages() or advice
        return missing_packages() or (None if torch.cuda.is_available() else "needs a CUDA device")

    def made_by(self, models: Mapping[str, Module]) -> dict[str, str]:
        """See `RoundBackend.made_by`: versions, the device, and how rounds are compiled."""
        device = next(iter(models.values())).device
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        settings = sorted((name, repr(value)) for name, value in _settings().items())
        return {"compiler": name_of(repr((self.version, kind, settings)))}

    def check(self, models: Mapping[str, Module], *, frozen: bool) -> None:
        """See `RoundBackend.check`."""
        super().check(models, frozen=frozen)
        for name, model in models.items():
            why = _not_run(model)
            if why:
                raise MissingCapabilityError(
                    f"TensorRT does not run {name}: {why[0]}", where=_WHERE, remedy=why[1]
                )

    def write(self, graph: RoundGraph, tensors: Sequence[Tensor], folder: Path) -> None:
        """See `RoundBackend.write`.

        Raises:
            MissingCapabilityError: an op does not convert; names it and the op of the plan that it
                comes from.
        """
        lowered = lower_round(graph, tensors)
        require_convertible(lowered)
        with torch.no_grad():
            module = compiled_module(lowered)
        write_package(module, lowered, folder)

    def load(self, folder: Path, models: Mapping[str, Module]) -> Program:
        """See `RoundBackend.load`.

        Raises:
            UsageError: a file is damaged, or the models lack a weight; names it.
            Exception: of TensorRT, where an engine does not load here.
        """
        stored = read_package(folder)
        device = next(iter(models.values())).device
        engines = [_engine(folder / one.file, one) for one in stored.engines]
        return program_of(stored, engines, folder, models, device)


def require_convertible(lowered: Lowered) -> None:
    """Refuse a round of which an op is known not to convert, before anything is compiled.

    Raises:
        MissingCapabilityError: names the op and the op of the plan that it comes from.
    """
    for node in lowered.program.graph.nodes:
        why = fails(node) if node.op == "call_function" else ""
        if why:
            raise _refusal(f"{node.target} {why} does not convert", source_of(node))


def compiled_module(lowered: Lowered) -> fx.GraphModule:
    """A round as torch-tensorrt compiles it: a graph whose submodules are engines.

    Raises:
        MissingCapabilityError: compiling fails; names the op at which it does.
    """
    import torch_tensorrt

    given, profile = list(lowered.given), lowered.profile
    place = len(lowered.weights) + lowered.reads.index(SLOTS)
    given[place] = torch_tensorrt.Input(
        min_shape=(profile.least,),
        opt_shape=(profile.usual,),
        max_shape=(profile.most,),
        dtype=given[place].dtype,
    )
    try:
        made: fx.GraphModule = torch_tensorrt.dynamo.compile(
            lowered.program, arg_inputs=given, **_settings()
        )
    except SpecplanError:
        raise
    except Exception as error:  # of TensorRT and of converters: they have no root of their own
        node = failing_node(error)
        at, source = (str(node.target), source_of(node)) if node is not None else ("", "")
        what = f"{at or 'the round'} does not convert ({foreign_words(error)})"
        raise _refusal(what, source) from error
    return made


def failing_node(error: BaseException) -> fx.Node | None:
    """The op that was being converted when an error was raised, as far as its trace tells."""
    node, trace = None, error.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            if isinstance(value, fx.Node) and value.op == "call_function":
                node = value
        trace = trace.tb_next
    return node


def _engine(path: Path, one: Engine) -> Callable[..., Any]:
    """An engine, ready to run."""
    from torch_tensorrt.dynamo._settings import CompilationSettings
    from torch_tensorrt.dynamo.runtime import TorchTensorRTModule

    module = TorchTensorRTModule(
        serialized_engine=path.read_bytes(),
        input_binding_names=one.inputs,
        output_binding_names=one.outputs,
        name=path.stem.replace(".", "_"),
        settings=CompilationSettings(**_settings()),
    )
    module.setup_engine()
    return module  # type: ignore[no-any-return]


def _settings() -> dict[str, Any]:
    return compile_settings(registry_here())


def registry_here() -> Registry:
    """What the version of torch-tensorrt that is installed converts; else the one for this torch.

    Raises:
        MissingCapabilityError: it is not known.
    """
    return registry_of(_version("torch-tensorrt") or torch.__version__)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _not_run(model: Module) -> tuple[str, str] | None:
    """Why TensorRT does not run a model, and what to do."""
    if model.device.type != "cuda":
        return f"it is on {model.device.type}", "Load the models on a CUDA device."
    if model.dtype == torch.float64:
        return "it is in float64, which TensorRT does not have", "Load the models in float32."
    if getattr(model, "quantized", False):
        return "its matrices are in blocks", "Load the models in float16 or bfloat16."
    return None


def _refusal(what: str, source: str) -> MissingCapabilityError:
    return MissingCapabilityError(
        f"torch-tensorrt: {what}", where=source or _WHERE, remedy="Choose another backend."
    )


BACKEND = TensorRtBackend
