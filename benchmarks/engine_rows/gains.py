"""Gains of speculation in SGLang, from the measured accept length of a setting.

gain = accept length x seconds of a plain step / seconds of a round. A round is the head's steps,
the target over all nodes, the acceptance and the engine's step. The number of GPUs is not stated:
it is, for all runs of a target, the one whose plain step comes nearest to most baselines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from decisions.configs import read_shapes, shape_of
from decisions.law import CONTEXT, COUNTS, head_shape

from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.models.layers import ExpertMlp
from specplan.cost_models.models.model_shape import ModelShape

DEVICE = "h200@sglang"
FITTED_TARGETS = ("Qwen3-30B-A3B", "Qwen3-Coder-30B-A3B", "Llama-3.3-70B")
"""Targets whose runs set the stack's draft step and acceptance; those of Llama-4-Scout did not, as
its rounds took less than the plain step that they are compared with."""
ALIKE = 0.7
"""How much of an independent token a drafted one is to a mixture's router; `decisions/law.py`."""


def gain_errors(
    runs: Sequence[Mapping[str, Any]], configs: Path | None, unpredicted: dict[str, int]
) -> Iterator[tuple[float, bool]]:
    """Errors of gains, and whether the run set no constant."""
    shapes = read_shapes(configs)
    devices = _devices(runs, shapes)
    for run in runs:
        shape = shape_of(str(run["target"]), shapes)
        if shape is None:
            unpredicted[f"no config.json of {run['target']!r} is known"] += 1
            continue
        predicted = float(run["accept_length"]) / round_in_steps(
            devices[str(run["target"])], shape, run
        )
        measured = run["tokens_per_second"] / run["baseline_tokens_per_second"]
        set_nothing = not any(name in str(run["target"]) for name in FITTED_TARGETS)
        yield predicted / measured - 1.0, set_nothing


def round_in_steps(device: AnalyticDevice, shape: ModelShape, run: Mapping[str, Any]) -> float:
    """Seconds of a round over those of a plain step."""
    batch, steps, topk = int(run["batch"]), int(run["steps"]), int(run["topk"])
    drafted = int(run["num_draft_tokens"]) - 1
    return round_seconds(device, shape, batch, steps, topk, drafted) / step_seconds(
        device, shape, batch
    )


def step_seconds(device: AnalyticDevice, shape: ModelShape, batch: int) -> float:
    """A plain step, the engine's part included."""
    seconds = device.forward_seconds(shape, batch, 1, CONTEXT).median
    return float(seconds) + float(device.round_seconds(batch).median)


def round_seconds(
    device: AnalyticDevice, shape: ModelShape, batch: int, steps: int, topk: int, drafted: int
) -> float:
    """Draft steps of an EAGLE-3 head, verification of all nodes, acceptance and the engine."""
    mixture = any(isinstance(layer.mlp, ExpertMlp) for layer in shape.layers)
    nodes = np.array([1.0 + (ALIKE if mixture else 1.0) * drafted])
    verify = float(np.asarray(device.forward_seconds(shape, batch, nodes, CONTEXT).median)[0])
    head = _head(shape)
    draft = float(device.forward_seconds(head, batch, topk, CONTEXT).median)
    accept = float(np.asarray(device.op_seconds("accept", batch, drafted).median))
    return verify + steps * draft + accept + float(device.round_seconds(batch).median)


@cache
def _head(shape: ModelShape) -> ModelShape:
    return head_shape(shape)


def _devices(
    runs: Sequence[Mapping[str, Any]], shapes: Mapping[str, ModelShape]
) -> dict[str, AnalyticDevice]:
    """By target, the GPUs whose plain step comes nearest to the baselines, in the median."""
    device = load_device(DEVICE)
    assert isinstance(device, AnalyticDevice)
    devices = {}
    for target in {str(run["target"]) for run in runs}:
        shape = shape_of(target, dict(shapes))
        if shape is None:
            continue
        wanted = {
            (int(run["batch"]), float(run["baseline_tokens_per_second"]))
            for run in runs
            if run["target"] == target
        }
        devices[target] = min(
            (device.times(count) for count in COUNTS),
            key=lambda one: float(
                np.median(
                    [abs(np.log(step_seconds(one, shape, n) * speed / n)) for n, speed in wanted]
                )
            ),
        )
    return devices
