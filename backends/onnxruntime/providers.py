"""Execution providers of ONNX Runtime, as data: where they run, and for which number types.

The CPU provider's types were tried with ONNX Runtime 1.31: it has no bfloat16 kernels of `MatMul`,
`Gemm`, `Softmax` and others. Those of the CUDA and TensorRT providers are as their documents say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from specplan.ir.errors import MissingCapabilityError


@dataclass(frozen=True)
class Provider:
    """One execution provider.

    Attributes:
        name: as ONNX Runtime spells it.
        device: kind of torch device whose memory it works on.
        dtypes: number types of models that it has kernels for.
        fallback: those that take over the ops it has not, in order.
        options: that sessions are made with.
        context: it can keep what it compiled in a model of its own (EPContext).
    """

    name: str
    device: str
    dtypes: frozenset[str]
    fallback: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    context: bool = False


def own_ops(provider: str = "CPUExecutionProvider") -> frozenset[str]:
    """Ops of ONNX Runtime's own set that a provider here has kernels for."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kernels = (one for one in state.get_all_opkernel_def() if one.provider == provider)
    return frozenset(one.op_name for one in kernels if one.domain == "com.microsoft")


CPU = Provider("CPUExecutionProvider", "cpu", frozenset({"float16", "float32", "float64"}))
CUDA = Provider(
    "CUDAExecutionProvider",
    "cuda",
    frozenset({"float16", "bfloat16", "float32", "float64"}),
    fallback=(CPU.name,),
    options={"use_tf32": "0"},
)
TENSORRT = Provider(
    "TensorrtExecutionProvider",
    "cuda",
    frozenset({"float16", "bfloat16", "float32"}),
    fallback=(CUDA.name, CPU.name),
    context=True,
)
PROVIDERS = (CPU, CUDA, TENSORRT)


def choose_provider(
    device: str, dtypes: Iterable[str], available: Iterable[str], wanted: str | None = None
) -> Provider:
    """The first provider that can run models of these number types on a device.

    Args:
        device: kind of torch device.
        dtypes: number types of the models.
        available: names that this build of ONNX Runtime has.
        wanted: name of the only one to take; any when None.

    Raises:
        MissingCapabilityError: says why there is none.
    """
    here, reasons = set(available), []
    for provider in PROVIDERS:
        lacking = sorted(set(dtypes) - provider.dtypes)
        if wanted not in (None, provider.name):
            continue
        if provider.device != device:
            reasons.append(f"{provider.name} runs on {provider.device}, the models are on {device}")
        elif provider.name not in here:
            reasons.append(f"{provider.name} is not in this build of ONNX Runtime")
        elif lacking:
            reasons.append(f"{provider.name} has no kernels of op MatMul for {', '.join(lacking)}")
        else:
            return provider
    raise MissingCapabilityError(
        f"backend onnxruntime cannot run these models: {'; '.join(reasons) or f'no {wanted}'}",
        remedy="Load them in float32 or on another device, or choose another backend.",
    )
