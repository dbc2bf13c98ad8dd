"""Sessions of ONNX Runtime on the weights of loaded models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from specplan.backends.onnxruntime.packed_sessions import PackedSession, PackedWeights
from specplan.backends.onnxruntime.values import BFLOAT16, denormals_as_zero

_ENTRIES = {"session.set_denormal_as_zero": "1"}
"""Of all sessions: their own threads take denormal numbers as 0."""


def open_session(
    model: bytes | str,
    weights: Mapping[str, Tensor] = MappingProxyType({}),
    *,
    entries: Mapping[str, str] = MappingProxyType({}),
    packed: PackedWeights | None = None,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
) -> Any:
    """A session with as many threads as torch has, which logs errors alone.

    Args:
        model: its bytes, or its path.
        weights: by the names of the model's initializers that lie elsewhere.
        entries: of its configuration.
        packed: packed matrices that it shares with other sessions, where the CPU provider runs it;
            None for its own.
        providers: names, or names and options, in order.

    Raises:
        Exception: of ONNX Runtime.
    """
    from onnxruntime import InferenceSession, SessionOptions

    entries = {**_ENTRIES, **entries}
    with denormals_as_zero():  # the first one of a process would leave this thread in its own mode
        if packed is not None:
            return PackedSession(model, weights, packed, entries)
        options = SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = torch.get_num_threads()
        for key, entry in entries.items():
            options.add_session_config_entry(key, entry)
        values = {name: _shared(weight) for name, weight in weights.items()}
        options.add_external_initializers([*values], [*values.values()])
        session = InferenceSession(model, options, providers=[*providers], enable_fallback=0)
        session.weights = values  # whose memory it reads
        return session


def _shared(weight: Tensor) -> Any:
    """A value of ONNX Runtime on a weight's own memory."""
    from onnxruntime import OrtValue

    if weight.device.type != "cpu":  # initializers are taken from the host
        weight = weight.cpu()
    if weight.dtype == torch.bfloat16:
        halves = weight.contiguous().view(torch.int16).numpy()
        return OrtValue.ortvalue_from_numpy_with_onnx_type(halves, BFLOAT16)
    return OrtValue.ortvalue_from_numpy(weight.contiguous().numpy())
