"""Vidur's operator profiles (microsoft/vidur, data/profiling/compute): four GEMMs of a layer.

The devices' efficiencies were fitted by `fit_devices.py` to the rows of Llama-2-7B under tensor
parallelism 1 and 4: those are calibration. Everything else is predicted: other widths of
tensor parallelism, other models. Profiles are of single kernels, one device's share each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from published_rows.public_models import public_model
from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.forward import forward_ops
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError

SYSTEMS = ("Vidur profile",)
DEVICES = {"A100": "a100-sxm-80gb", "H100": "h100-sxm", "A40": "a40"}
OPS = {
    "attn_pre_proj": "query_key_value",
    "attn_post_proj": "attention_output",
    "mlp_up_proj": "mlp_up",
    "mlp_down_proj": "mlp_down",
}
CALIBRATION_MODEL = "Llama-2-7b-hf"
CALIBRATION_WIDTHS = (1, 4)
LONGEST = 1_000_000


def is_calibration(row: Row) -> bool:
    """Whether the devices' efficiencies were fitted to it."""
    return row.target.endswith(CALIBRATION_MODEL) and row.get("tp") in CALIBRATION_WIDTHS


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """The sum of a row's four products, and each product (metric `op_time`)."""
    for row in rows:
        shape, device = public_model(row.target), _device(row)
        tokens, width = row.count("num_tokens", 1_000_000), row.count("tp", 64) or 1
        if shape is None or device is None or tokens is None:
            yield Unpredicted(row, "the model or the device is not known here")
            continue
        try:
            microseconds = op_microseconds(device, shape, tokens, width)
        except UsageError as error:
            yield Unpredicted(row, str(error))
            continue
        if row.metric == "layer_gemm_time":
            yield Prediction(row, sum(microseconds.values()), is_calibration(row))
        for item in op_rows(row):
            yield Prediction(item, microseconds[str(item.setting["op"])], is_calibration(row))


def op_rows(row: Row) -> Iterator[Row]:
    """Rows of single products, from the note of their sum."""
    for op, value in _note(row).get("per_op", {}).items():
        if op in OPS and isinstance(value, int | float) and value > 0:
            op_row = row.deriving("op_time", float(value), "us")
            yield replace(op_row, setting={**row.setting, "op": op})


def elementwise_microseconds(row: Row) -> float | None:
    """Time of the small kernels of a layer, from the note of its products."""
    value = _note(row).get("elementwise")
    return float(value) if value is not None else None


def op_microseconds(
    device: AnalyticDevice, shape: ModelShape, tokens: int, width: int
) -> dict[str, float]:
    """Predicted time of each product of a layer, by Vidur's name of it."""
    ops = forward_ops(shape, 1, tokens, 0, 0, (0, 1), tensor_parallel=width)
    times = {op.name: 1e6 * float(device.kernels.seconds(op)) for op in ops if op.matrix}
    return {name: times[ours] for name, ours in OPS.items()}


def _note(row: Row) -> dict[str, Any]:
    try:
        note = json.loads(row.note)
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _device(row: Row) -> AnalyticDevice | None:
    name = DEVICES.get(row.hardware)
    device = load_device(name) if name else None
    return device if isinstance(device, AnalyticDevice) else None
