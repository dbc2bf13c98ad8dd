"""The onnxruntime backend: each round one run of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor

from specplan.backends.machine import onnxruntime_version
from specplan.backends.onnxruntime.capabilities import CAPABILITIES
from specplan.backends.onnxruntime.cpu_kernels.building import digest, kernels
from specplan.backends.onnxruntime.cpu_kernels.definition import are_as_defined
from specplan.backends.onnxruntime.package import load_package, write_package
from specplan.backends.onnxruntime.packed_sessions import PackedWeights, can_share
from specplan.backends.onnxruntime.prompts import PromptProgram, fits
from specplan.backends.onnxruntime.providers import CPU, Provider, choose_provider, own_ops
from specplan.backends.registry import missing_packages
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.packages import RoundBackend
from specplan.backends.static.session import Program, States, TextProgram
from specplan.backends.static.traced.joined_attention import joinable
from specplan.ir.errors import MissingCapabilityError
from specplan.runtime.models.cache_parts.number_types import CODES
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.modules import Module


class OnnxRuntimeBackend(RoundBackend):
    """Compiles rounds to ONNX and runs them with ONNX Runtime.

    Args:
        provider: name of the execution provider; the first that can run the models when None.
        context: what the provider compiles is after beside each round, so that opening it is quick
            (EPContext); only where the provider can.
    """

    capabilities = CAPABILITIES

    def __init__(self, provider: str | None = None, *, context: bool = False) -> None:
        self._wanted = provider
        self._context = context
        self._packed: PackedWeights | None = None

    @property
    def version(self) -> str:
        """See `RoundBackend.version`: of ONNX Runtime and of our own kernels, where they run."""
        own = f"+{digest()}" if kernels() is not None else ""
        return f"{onnxruntime_version()}{own}"

    def available(self) -> str | None:
        """None when torch, transformers and the packages for ONNX are here, else what is not."""
        needed = ("onnx", "onnx_ir", "onnxscript", "onnxruntime")
        missing = ", ".join(name for name in needed if find_spec(name) is None)
        advice = f"needs {missing}. Install it with: pip install 'specplan[onnx]'"
        return missing_packages() or (advice if missing else None)

    def provider(self, models: Mapping[str, Module]) -> Provider:
        """What runs these models.

        Raises:
            MissingCapabilityError: nothing does.
        """
        if find_spec("onnxruntime") is None:
            raise MissingCapabilityError(
                "running ONNX rounds needs onnxruntime",
                where="backend onnxruntime",
                remedy="Install it with: pip install 'specplan[onnx]'",
            )
        import onnxruntime

        device = next(iter(models.values())).device.type
        dtypes = {str(model.dtype).removeprefix("torch.") for model in models.values()}
        here = onnxruntime.get_available_providers()
        provider = choose_provider(device, dtypes, here, self._wanted)
        if self._context and not provider.context:
            raise MissingCapabilityError(
                f"{provider.name} compiles nothing that a context could keep",
                where="backend onnxruntime",
                remedy="Leave the context out, or choose TensorrtExecutionProvider.",
            )
        return provider

    def joined(self, models: Mapping[str, Module]) -> frozenset[str]:
        """See `RoundBackend.joined`: `GroupQueryAttention` of the CPU provider."""
        device = next(iter(models.values())).device.type
        there = find_spec("onnxruntime") is not None and "GroupQueryAttention" in own_ops()
        return joinable(models) if device == "cpu" and there else frozenset()

    def text_program(
        self, name: str, model: Module, slots: int, after: States = ()
    ) -> TextProgram | None:
        """See `RoundBackend.text_program`."""
        if not self.joined({name: model}) or not fits(name, model):
            return None
        assert isinstance(model, CausalModel | Drafter)
        return PromptProgram(model, slots, after, self._shared_by({name: model}))

    def check(self, models: Mapping[str, Module], *, frozen: bool) -> None:
        """See `RoundBackend.check`."""
        super().check(models, frozen=frozen)
        provider = self.provider(models)
        codes = [name for name, model in models.items() if model.cache_dtype == CODES]
        if codes:
            raise MissingCapabilityError(
                f"ONNX has no op for the caches of {codes[0]}, which store keys and values in fp8",
                where="backend onnxruntime",
                remedy="Give float16 or bfloat16 as kv_format, or choose the backend eager.",
            )
        quantized = [name for name, model in models.items() if getattr(model, "quantized", False)]
        if quantized and "MatMulNBits" not in own_ops(provider.name):
            raise MissingCapabilityError(
                f"this ONNX Runtime has no op MatMulNBits for {provider.name}, which the matrices "
                f"of {quantized[0]} need",
                where="backend onnxruntime",
                remedy="Install another version, or load the model in float32.",
            )
        if quantized and not are_as_defined():
            raise MissingCapabilityError(
                f"ONNX Runtime multiplies by the blocks of {quantized[0]} in another way on this "
                "processor than they are defined",
                where="backend onnxruntime",
                remedy="Load the model in float32, or run it by the backend eager.",
            )

    def write(self, graph: RoundGraph, tensors: Sequence[Tensor], folder: Path) -> None:
        """See `RoundBackend.write`."""
        provider = self.provider(graph.models)
        packed = self._shared_by(graph.models)
        write_package(graph, tensors, folder, provider, context=self._context, packed=packed)

    def load(self, folder: Path, models: Mapping[str, Module]) -> Program:
        """See `RoundBackend.load`."""
        return load_package(folder, models, self.provider(models), packed=self._shared_by(models))

    def _shared_by(self, models: Mapping[str, Module]) -> PackedWeights | None:
        """What all sessions of these models share, where ONNX Runtime can."""
        if self.provider(models) is not CPU or not can_share():
            return None
        self._packed = self._packed or PackedWeights()
        return self._packed


BACKEND = OnnxRuntimeBackend
