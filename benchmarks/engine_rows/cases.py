"""A row of an engine's benchmark as a case that the cost models can predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from decisions.configs import read_shapes, shape_of

from published_rows.public_models import public_model
from published_rows.row import Row
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import number_format
from specplan.ir.errors import SpecplanError

DEVICES = (
    ("h20-3e", "h20-141gb"),
    ("gh200", "gh200"),
    ("h200", "h200"),
    ("h20", "h20"),
    ("h100-pcie", "h100-pcie"),
    ("h100", "h100-sxm"),
    ("h800", "h100-sxm"),
    ("a100-sxm4-40gb", "a100-sxm-40gb"),
    ("a100-pcie", "a100-pcie-80gb"),
    ("40gb assumed", "a100-sxm-40gb"),
    ("a100", "a100-sxm-80gb"),
    ("a800", "a100-sxm-80gb"),
    ("gb300", "gb300"),
    ("gb200", "gb200"),
    ("b300", "b300"),
    ("b200", "b200"),
    ("mi300x", "mi300x"),
    ("mi325x", "mi325x"),
    ("mi355x", "mi355x"),
    ("a6000", "a6000"),
    ("rtx 6000 ada", "rtx-6000-ada"),
    ("rtx 5090", "rtx-5090"),
    ("rtx 4090 d", None),
    ("rtx 4090", "rtx-4090"),
    ("rtx 3090", "rtx-3090"),
    ("l40s", "l40s"),
    ("l4", "l4"),
    ("t4", "t4"),
)
"""Word of a source's hardware, lower case, and the data sheet; None where there is none."""
_STACKS = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
}
_FAMILIES = (
    (("deepseek-r1", "deepseek-v3.1", "dsr1"), "deepseek-v3"),
    (("llama-3.3-70b",), "llama-3.1-70b"),
)
"""Names of models that have the shape of another one."""
_QUANTISED = (
    ("fp8", "fp8"),
    ("awq", "int4"),
    ("gptq", "int4"),
    ("w8a8", "w8a8"),
    ("nvfp4", "nvfp4"),
)
LONGEST = 1_000_000


@dataclass(frozen=True)
class Case:
    """What was run.

    Attributes:
        engine: a stack's name.
        shape: the target.
        device: of one GPU, under that stack.
        count: GPUs that share each layer.
        batch: requests in flight.
        inputs: tokens of a prompt.
        outputs: tokens of an answer.
    """

    engine: str
    shape: ModelShape
    device: AnalyticDevice
    count: int
    batch: int
    inputs: int
    outputs: int

    def step(self) -> float:
        """Seconds of a decoding step without a prefill, at the mean context."""
        context = self.inputs + self.outputs / 2.0
        device = self.device.times(self.count)
        seconds = device.forward_seconds(self.shape, self.batch, 1, context, 1)
        return float(seconds.median) + float(device.round_seconds(self.batch).median)

    def prefill(self) -> float:
        """Seconds of one prompt."""
        device = self.device.times(self.count)
        return float(device.prefill_seconds(self.shape, 1, self.inputs).median)

    def tpot(self) -> float:
        """Time per output token where others' prompts are filled between its tokens.

        With a fixed number of requests in flight, each other one begins once while a request
        decodes.
        """
        others = (self.batch - 1) / max(self.outputs, 1)
        return self.step() + others * self.prefill()

    def tokens_per_second(self) -> float:
        """Output tokens of all requests per second."""
        return self.batch * self.outputs / (self.prefill() + self.outputs * self.tpot())


def read_case(row: Row, stack: str, configs: Path | None) -> Case | str:
    """The case of a row, or the reason why it is none."""
    name = _device(row.hardware)
    if name is None:
        return f"no data sheet of {row.hardware!r}"
    shape = _shape(row, configs)
    if shape is None:
        return f"no config.json of {row.target!r} is known"
    sizes = {
        "num_devices": _first(row, "num_devices", "tp", "tensor_parallel", "num_gpus") or 1,
        "batch": _first(row, "concurrency", "batch", "batch_size", "conc"),
        "inputs": _first(row, "input_len", "isl", "input_tokens", "prompt"),
        "outputs": _first(row, "output_len", "osl", "output_tokens", "output"),
    }
    missing = [key for key, value in sizes.items() if value is None]
    if missing:
        return f"the row does not state {', '.join(missing)}"
    count, batch, inputs, outputs = (int(value or 0) for value in sizes.values())
    device = load_device(f"{name}@{stack}")
    assert isinstance(device, AnalyticDevice)
    return Case(stack, shape, device, count, batch, inputs, outputs)


def engine_of(system: str) -> str | None:
    """The stack's name of a system as rows call it; None for another system."""
    text = system.lower()
    return next((stack for word, stack in _STACKS.items() if word in text), None)


def _first(row: Row, *keys: str) -> int | None:
    return next((n for key in keys if (n := row.count(key, LONGEST)) is not None), None)


def _device(hardware: str) -> str | None:
    text = hardware.lower()
    return next((name for word, name in DEVICES if word in text), None)


def _shape(row: Row, configs: Path | None) -> ModelShape | None:
    name = row.target.lower()
    name = next((known for words, known in _FAMILIES if any(w in name for w in words)), name)
    shape = shape_of(name, _configs(configs)) or public_model(name)
    if shape is None:
        return None
    form = row.setting.get("precision") or row.setting.get("weight_format")
    named = next((form for word, form in _QUANTISED if word in row.target.lower()), None)
    try:
        return _in_format(shape, str(form or named or ""))
    except SpecplanError:
        return None


def _in_format(shape: ModelShape, form: str) -> ModelShape | None:
    if form in ("", "bfloat16", "float16", "auto", "None"):
        return shape
    if form == "other":
        return None
    if form == "fp4":
        return replace(shape, formats=replace(shape.formats, experts=number_format("nvfp4")))
    if form == "fp8" and shape.formats.experts.math == "fp8":
        return shape
    return replace(shape, formats=shape.formats.with_matrices(number_format(form)))


@cache
def _configs(folder: Path | None) -> dict[str, ModelShape]:
    return read_shapes(folder)


def settings_of(row: Row) -> Mapping[str, object]:
    """What a row states of its run, for messages."""
    return {key: value for key, value in row.setting.items() if key != "command"}
