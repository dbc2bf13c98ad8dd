"""MagicDec (arXiv 2408.11049): long contexts, large batches, eight GPUs under tensor parallelism.

A round drafts gamma tokens with a cache of fixed budget, verifies them against the whole cache,
and accepts; tokens per round (Omega) are the row's. After a round in which some request accepted
all drafts, the first draft step takes two tokens: its cache lacks the last one (the repository's
`double_buffer`). What the round adds besides is the `acceptance_seconds` of the stack.

Calibration, two constants per GPU type, both of its all-reduces (NCCL within compiled graphs):
latency, and bandwidth at messages of some megabytes. Rows: times of plain steps and of
verification (T_AR, T_V) up to 4096 tokens of context, or up to 8192 where there are none shorter.
Without such rows the shipped constants serve: those of the A100 rows, and for other GPUs what
follows from them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from published_rows.public_models import public_model
from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.roofline import AnalyticDevice
from specplan.cost_models.formulas.closed_forms import acceptance_of_tokens
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError

Array = npt.NDArray[np.float64]

SYSTEMS = ("MagicDec",)
DEVICES = {"A100": "a100-sxm-80gb", "H100": "h100-sxm", "L40": "l40", "L40S": "l40s"}
PLAIN, VERIFICATION = "AR_time_per_step_TAR", "verify_time_TV"
MOST = 10_000_000
SHORT, LONGEST = 4096, 8192
"""Contexts of calibration rows: up to the first, or up to the second where there are none."""
SHIPPED = {"A100": (69.7e-6, 82.9e9)}
"""Seconds per all-reduce, and bytes per second through it; `fit_stacks.py` prints them."""
COPY_SHARE = 0.064
"""Of the memory bandwidth, what goes through the copies and sums of an all-reduce beside its
links: on the A100 130 GB/s, which with 230 GB/s of links leaves 83 GB/s. Taken to be the same
share on other GPUs."""
PRIOR = (0.5, 0.5)
"""Standard deviations of the logarithms of both constants around the shipped ones."""
STEP_ERROR = 0.05


@dataclass(frozen=True)
class Case:
    """One configuration of the tables, times in milliseconds.

    Attributes:
        device: all GPUs together.
        target: the model.
        draft: what drafts, may be the target itself.
        budget: tokens in the draft's cache.
        context: tokens in the target's.
        batch: requests.
        gamma: drafted tokens.
        tokens_per_round: Omega, as published.
    """

    device: AnalyticDevice
    target: ModelShape
    draft: ModelShape
    budget: int
    context: int
    batch: int
    gamma: int
    tokens_per_round: float

    def step(self) -> float:
        """A plain decoding step, T_AR."""
        return self._pass(self.target, 1, self.context)

    def verification(self) -> float:
        """A forward over the drafts and the root, T_V."""
        return self._pass(self.target, self.gamma + 1, self.context)

    def drafting(self) -> float:
        """All draft steps, gamma T_D."""
        one, two = (self._pass(self.draft, tokens, self.budget) for tokens in (1, 2))
        late = self._someone_accepted_all()
        return self.gamma * one + late * (two - one)

    def per_token(self) -> float:
        """T_SD."""
        judging = 1e3 * self.device.op_seconds("accept", self.batch, self.gamma).median
        return (self.drafting() + self.verification() + judging) / self.tokens_per_round

    def _pass(self, shape: ModelShape, tokens: int, context: int) -> float:
        return 1e3 * self.device.forward_seconds(shape, self.batch, tokens, context).median

    def _someone_accepted_all(self) -> float:
        alpha = acceptance_of_tokens(self.tokens_per_round, self.gamma)
        return float(1.0 - (1.0 - alpha**self.gamma) ** self.batch)


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Step times, time per token and speedup."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.hardware, row.target, row.draft, row.task, str(sorted(row.setting.items()))] += [
            row
        ]
    constants = {gpu: calibrate(gpu, rows) for gpu in DEVICES}
    named = {id(row) for gpu in DEVICES for row in calibration_rows(gpu, rows)}
    for group in groups.values():
        case = case_of(group, constants)
        answers = _answers(case) if case else {}
        for row in group:
            if row.metric in answers:
                yield Prediction(row, answers[row.metric], id(row) in named)
            elif row.metric == "tokens_per_step_Omega":
                yield Unpredicted(row, "acceptance of a model pair is measured, not derived")
            else:
                yield Unpredicted(row, "a model, the device or a part of the row is not known here")


def calibration_rows(gpu: str, rows: Sequence[Row]) -> list[Row]:
    """Plain steps and verifications with short contexts."""
    steps = [row for row in rows if row.metric in (PLAIN, VERIFICATION) and gpu_of(row) == gpu]
    for longest in (SHORT, LONGEST):
        short = [row for row in steps if (row.get("context") or np.inf) <= longest]
        if short:
            return short
    return []


def gpu_of(row: Row) -> str:
    """Which of `DEVICES` a row ran on, empty for none."""
    match = re.fullmatch(r"\d+x(\w+).*", row.hardware)
    return match[1] if match and match[1] in DEVICES else ""


def shipped(gpu: str) -> tuple[float, float]:
    """Seconds per all-reduce and bytes per second through it, without calibration."""
    if gpu in SHIPPED:
        return SHIPPED[gpu]
    device = load_device(f"{DEVICES[gpu]}@magicdec")
    assert isinstance(device, AnalyticDevice)
    latency = device.stack.collective_latency * device.seconds_per_collective
    copies = COPY_SHARE * device.memory_bandwidth
    return latency, 1.0 / (1.0 / device.link_bandwidth + 1.0 / copies)


def calibrate(gpu: str, rows: Sequence[Row]) -> tuple[float, float]:
    """The constants of a GPU type: those of its calibration rows, near the shipped ones."""
    from scipy.optimize import least_squares

    start, named = np.array(shipped(gpu)), calibration_rows(gpu, rows)
    pairs = [(row, case_of([row], {gpu: shipped(gpu)})) for row in named]
    known = [
        (row, row.number, case)
        for row, case in pairs
        if case and _answers(case) and row.number and row.number > 0
    ]
    if not known:
        return float(start[0]), float(start[1])

    def misfit(logs: Array) -> Array:
        latency, bandwidth = start * np.exp(logs)
        errors = []
        for row, value, case in known:
            here = replace(case, device=linked(case.device, latency, bandwidth))
            time = here.step() if row.metric == PLAIN else here.verification()
            errors.append(np.log(time / value) / STEP_ERROR)
        return np.array([*errors, *(logs / PRIOR)])

    fitted = start * np.exp(least_squares(misfit, np.zeros(2)).x)
    return float(fitted[0]), float(fitted[1])


def linked(device: AnalyticDevice, latency: float, bandwidth: float) -> AnalyticDevice:
    """A device with these all-reduces."""
    stack = replace(device.stack, collective_latency=1.0)
    return replace(device, stack=stack, seconds_per_collective=latency, link_bandwidth=bandwidth)


def case_of(group: Sequence[Row], constants: dict[str, tuple[float, float]]) -> Case | None:
    """What the rows of one configuration ran; None where something of it is not known."""
    row, gpu = group[0], gpu_of(group[0])
    target = public_model(row.target)
    draft = target if row.draft.startswith("self") else public_model(row.draft)
    context, batch, gamma = (row.count(key, MOST) for key in ("context", "batch", "gamma"))
    if not gpu or target is None or draft is None:
        return None
    if context is None or batch is None or gamma is None:
        return None
    budgets = re.findall(r"\b\d{3,5}\b", row.draft)
    tokens = next((r.number for r in group if r.metric == "tokens_per_step_Omega"), None)
    try:
        device = load_device(f"{row.hardware.split('x')[0]}x{DEVICES[gpu]}@magicdec")
    except UsageError:
        return None
    assert isinstance(device, AnalyticDevice)
    budget = int(budgets[-1]) if budgets else context
    return Case(
        linked(device, *constants[gpu]), target, draft, budget, context, batch, gamma, tokens or 1.0
    )


def _answers(case: Case) -> dict[str, float]:
    try:
        answers = {
            PLAIN: case.step(),
            VERIFICATION: case.verification(),
            "draft_time_total_gammaTD": case.drafting(),
        }
    except UsageError:
        return {}
    if case.tokens_per_round > 1.0:
        answers["SD_time_per_token_TSD"] = case.per_token()
        answers["speedup"] = answers[PLAIN] / answers["SD_time_per_token_TSD"]
    return answers
