"""LLM-Inference-Bench (argonne-lcf, arXiv 2411.00136): end-to-end latency of batches.

A batch of equal requests, input and output of one length, on one to four GPUs. Requests whose
caches do not fit beside the weights wait: a batch runs in waves of as many as fit. A wave takes
its prefill and one decoding step per token, integrated over the growing context by Simpson's rule.

Calibration, by `fit_stacks.py`, per framework: the rows of Llama-2-7B on A100 (multi-head
attention) and, for what grouped heads cost, those of Mistral-7B with 1024 tokens on one A100.
All else is predicted with the constants of `cost_models/devices/stacks/`: other models, H100.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from published_rows.public_models import public_model
from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.devices.stack import Stack, load_stack
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError

SYSTEMS = ("AR TensorRT-LLM", "AR vLLM")
DEVICES = {"A100": "a100-sxm-40gb", "H100": "h100-sxm"}
LONGEST = 1_000_000


@dataclass(frozen=True)
class Framework:
    """A stack, and the memory that it leaves for caches.

    Attributes:
        stack: launches the kernels.
        memory_share: part of the GPU's memory that it takes at most.
        reserve_bytes: of that, per GPU, for its runtime.
        token_copies: activations of a prefill's tokens that are held at once, in copies of what a
            layer's MLP and four hidden states take; 0 where prefills are chunked.
    """

    stack: Stack
    memory_share: float = 0.9
    reserve_bytes: float = 1.2e9
    token_copies: float = 0.0


def frameworks() -> dict[str, Framework]:
    """By system.

    Shares are the frameworks' defaults; reserve and copies of TensorRT-LLM by `fit_stacks.py`;
    vLLM's reserve is an assumption: its graphs, and chunks of 2048 tokens.
    """
    return {
        "AR TensorRT-LLM": Framework(load_stack("tensorrt-llm-2024"), 0.9, 0.5e9, token_copies=0.7),
        "AR vLLM": Framework(load_stack("vllm-2024"), 0.9, 2.5e9),
    }


def is_calibration(row: Row) -> bool:
    """Whether the stacks were fitted to it."""
    if "A100" not in row.hardware:
        return False
    if "Llama-2-7b" in row.target:
        return True
    return (
        "Mistral-7B" in row.target
        and row.get("num_devices") == 1
        and row.get("input_len") == row.get("output_len") == 1024
    )


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """End-to-end latency, s."""
    known = frameworks()
    for row in rows:
        case = Case.of(row)
        if case is None or row.metric != "end_to_end_latency":
            yield Unpredicted(row, "the model, the device or the metric is not known here")
            continue
        try:
            seconds = case.seconds(known[row.system])
        except UsageError as error:
            yield Unpredicted(row, str(error))
            continue
        yield Prediction(row, seconds, is_calibration(row))


@dataclass(frozen=True)
class Case:
    """One batch.

    Attributes:
        shape: the model.
        device: one GPU.
        count: GPUs that share each layer.
        inputs: tokens of each prompt.
        outputs: tokens of each answer.
        batch: requests.
    """

    shape: ModelShape
    device: AnalyticDevice
    count: int
    inputs: int
    outputs: int
    batch: int

    @classmethod
    def of(cls, row: Row) -> Case | None:
        """What a row ran; None where something of it is not known here."""
        shape = public_model(row.target)
        names = [name for key, name in DEVICES.items() if key in row.hardware]
        keys = ("num_devices", "input_len", "output_len", "batch")
        sizes = [size for key in keys if (size := row.count(key, LONGEST)) is not None]
        if shape is None or not names or len(sizes) < len(keys):
            return None
        device = load_device(names[0])
        assert isinstance(device, AnalyticDevice)
        return cls(shape, device, *sizes)

    def seconds(self, framework: Framework) -> float:
        """Time until the last request is done."""
        device = replace(self.device.times(self.count), stack=framework.stack)
        together = self.together(framework)
        whole, rest = divmod(self.batch, together)
        full_waves = whole * self._wave(device, together) if whole else 0.0
        return full_waves + (self._wave(device, rest) if rest else 0.0)

    def together(self, framework: Framework) -> int:
        """Requests whose caches fit at once; at least one, since the row was measured."""
        shape = self.shape
        free = framework.memory_share * self.device.memory_bytes
        free -= shape.weight_bytes / self.count + framework.reserve_bytes
        inner = max(layer.mlp.up_width for layer in shape.layers) / self.count
        activations = 2.0 * (inner + 4 * shape.hidden_size) * self.batch * self.inputs
        free -= min(framework.token_copies * activations, free / 2.0)
        tokens = self.inputs + self.outputs
        per_request = tokens * shape.kv_bytes_per_token / min(self.count, _kv_heads(shape))
        return max(1, min(self.batch, int(free / per_request)))

    def _wave(self, device: AnalyticDevice, batch: int) -> float:
        prefill = device.prefill_seconds(self.shape, batch, self.inputs).median
        contexts = self.inputs + self.outputs * np.array([0.0, 0.5, 1.0])
        steps = np.asarray(device.forward_seconds(self.shape, batch, 1, contexts).median)
        return prefill + self.outputs * float(steps @ np.array([1.0, 4.0, 1.0])) / 6.0


def _kv_heads(shape: ModelShape) -> int:
    return int(getattr(shape.layers[0].attention, "num_kv_heads", 1))
