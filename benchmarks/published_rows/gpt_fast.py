"""gpt-fast (meta-pytorch/gpt-fast README): decoding of one request, tokens per second.

Prompts of 5 tokens, 200 new ones. Calibration, by `fit_stacks.py`: Llama-2-7B in int8 on one A100
sets the operations to widen a weight (stack `gpt-fast`), in bfloat16 on eight the latency of an
all-reduce (device `a100-sxm-80gb`). Predicted: one GPU in bfloat16, other models, int4 (a scale
and a zero of 16 bits per 32 weights), 2 to 8 GPUs, a mixture of experts, another GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from published_rows.public_models import public_model
from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import number_format
from specplan.ir.errors import UsageError

SYSTEMS = ("gpt-fast AR", "gpt-fast SD")
DEVICES = {"A100-80GB": "a100-sxm-80gb", "MI250x one GCD": "mi250x-gcd"}
FORMATS = {"int8": "int8", "int4-g32": "int4-g32-tinygemm"}
PROMPT, ANSWER = 5, 200


def calibrates(row: Row) -> str:
    """Which constant a row set; empty for none."""
    if row.system != "gpt-fast AR" or row.target != "Llama2-7B" or "A100" not in row.hardware:
        return ""
    setting = (row.setting.get("precision"), row.get("tp"))
    named: dict[object, str] = {
        ("int8", 1.0): "dequantise_operations",
        ("bf16", 8.0): "seconds_per_collective",
    }
    return named.get(setting, "")


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Tokens per second of plain decoding."""
    for row in rows:
        if row.system != "gpt-fast AR" or row.metric != "tokens_per_s":
            yield Unpredicted(row, "its acceptance and drafted length are not stated")
            continue
        seconds = step_seconds(row)
        if seconds is None:
            yield Unpredicted(row, "the model, its format or the device is not known here")
            continue
        yield Prediction(row, 1.0 / seconds, bool(calibrates(row)))


def step_seconds(row: Row, device: AnalyticDevice | None = None) -> float | None:
    """One decoding step at the mean context; None where something of the row is not known here.

    Args:
        row: says the model, its format and the number of GPUs.
        device: one GPU under a stack; default the row's under `gpt-fast`.
    """
    shape = _shape(row)
    name = next((name for key, name in DEVICES.items() if key in row.hardware), None)
    count, batch = (row.count(key) if key in row.setting else 1 for key in ("tp", "batch"))
    if shape is None or name is None or count is None or batch is None:
        return None
    one = device or load_device(f"{name}@gpt-fast")
    assert isinstance(one, AnalyticDevice)
    try:
        return one.times(count).forward_seconds(shape, batch, 1, PROMPT + ANSWER / 2).median
    except UsageError:
        return None


def _shape(row: Row) -> ModelShape | None:
    shape, precision = public_model(row.target), str(row.setting.get("precision") or "bf16")
    if shape is None or re.fullmatch(r"bf16|fp16", precision):
        return shape
    if precision not in FORMATS:
        return None
    form = number_format(FORMATS[precision])
    return replace(shape, formats=replace(shape.formats.with_matrices(form), head=form))
