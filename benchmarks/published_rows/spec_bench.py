"""Spec-Bench leaderboard (hemingkx/Spec-Bench): what a round costs, in plain decoding steps.

Given tokens per round, the step-cost ratio r = tokens per round / speedup isolates the cost model.
It is predicted from what each method does in a round (`spec_bench_methods.py`), the device model,
and one constant per machine: the seconds that its host takes to launch a kernel.

- A100: 17.5 microseconds, from another publication: 24.2 ms per plain step of Llama-2-7B in
  eager PyTorch on an A100 (Sequoia, arXiv 2402.12374), over 1 384 launches.
- RTX 3090: calibrated on the SpS row, which is mostly launches of a small draft model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from published_rows.eager_host import EAGER, EagerHost, Pass
from published_rows.public_models import known_model, public_model, size_of
from published_rows.row import Prediction, Row, Unpredicted, index, key_of
from published_rows.spec_bench_methods import (
    METHODS,
    PLAIN,
    PLAIN_LAUNCHES,
    PLAIN_READS,
    SPS_DRAFT_LAYER,
    SPS_ROUND_LAUNCHES,
    SPS_ROUND_READS,
    Method,
    assisted_draft_length,
)
from specplan.cost_models.models.model_shape import ModelShape

SYSTEMS = (*METHODS, "SpS")
GROUP = "Spec-Bench"
SOURCE = "Spec-Bench"
CONTEXT = 500
"""Tokens in the cache, about the mean over prompts and answers of the benchmark."""

SPS_DRAFT = known_model("vicuna-68m")

DEVICES = {"A100-80GB": "a100-sxm-80gb", "RTX 3090 24GB": "rtx-3090"}
TILE_ROWS = {"RTX 3090 24GB": 64}
"""GA102 takes as long for 64 rows as for 128 on the A40 of microsoft/vidur, but not as for 32."""

SHIPPED_DISPATCH = {"A100-80GB": EAGER.dispatch_seconds, "RTX 3090 24GB": 7.6e-6}
CALIBRATED = ("RTX 3090 24GB", "SpS")


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """The ratio r and the speedup of every method over all tasks."""
    mine = [row for row in rows if SOURCE in row.source]
    overall = [row for row in mine if row.task == "all"]
    given = index(
        (row for row in overall if row.metric == "tokens_per_step"), "system", "hardware", "target"
    )
    hosts = calibrate(overall)
    for row in mine:
        tokens = given.get(key_of(row, "system", "hardware", "target"))
        if row.metric == "tokens_per_step":
            yield Unpredicted(row, "given to the model: acceptance of checkpoints is measured")
        elif row.task != "all":
            yield Unpredicted(row, "tokens per round are published for all tasks together only")
        elif row.metric == "speedup" and tokens is not None and tokens.positive and row.positive:
            yield from _predict(row, tokens.positive, hosts)


def _predict(
    row: Row, tokens: float, hosts: dict[str, EagerHost]
) -> Iterator[Prediction | Unpredicted]:
    host, target = hosts.get(row.hardware), public_model(row.target)
    if host is None or target is None or not row.positive:
        yield Unpredicted(row, "unknown hardware or target")
        return
    ratio = step_cost_ratio(host, target, row.system, tokens)
    named = (row.hardware, row.system) == CALIBRATED
    published = row.deriving("step_cost_ratio", tokens / row.positive)
    yield Prediction(published, ratio, calibration=named, group=f"{GROUP} {size_of(row.target)}")
    yield Prediction(row, tokens / ratio, calibration=named)


def step_cost_ratio(host: EagerHost, target: ModelShape, system: str, tokens: float) -> float:
    """Seconds of a round over seconds of a plain decoding step."""
    if system != "SpS":
        return method_ratio(host, target, METHODS[system])
    seconds = _assisted_seconds(host, target, assisted_draft_length(tokens))
    return seconds / _plain_seconds(host, target)


def method_ratio(host: EagerHost, target: ModelShape, method: Method) -> float:
    """The same for a method whose rounds do not depend on its tokens per round."""
    return _round_seconds(host, target, method) / _plain_seconds(host, target)


def _plain_seconds(host: EagerHost, target: ModelShape) -> float:
    plain = host.pass_seconds(target, PLAIN, CONTEXT)
    return plain + host.host_seconds(PLAIN_LAUNCHES, PLAIN_READS)


def _round_seconds(host: EagerHost, target: ModelShape, method: Method) -> float:
    seconds = host.pass_seconds(target, method.verify, CONTEXT)
    seconds += host.host_seconds(method.launches, method.reads)
    if method.draft is not None:
        seconds += method.drafts * host.pass_seconds(target, method.draft, CONTEXT)
    for rows in method.head_rows:
        head = Pass((rows,), 0, other_kernels=1, layers=0)
        seconds += host.pass_seconds(target, head, CONTEXT)
    return seconds


def _assisted_seconds(host: EagerHost, target: ModelShape, drafted: float) -> float:
    """A round of assisted generation with a draft model of two layers."""
    draft = host.pass_seconds(SPS_DRAFT, Pass((1,), SPS_DRAFT_LAYER), CONTEXT)
    draft += host.host_seconds(PLAIN_LAUNCHES, PLAIN_READS)
    verify = host.pass_seconds(target, Pass((round(drafted) + 1,), PLAIN.layer_kernels), CONTEXT)
    return verify + drafted * draft + host.host_seconds(SPS_ROUND_LAUNCHES, SPS_ROUND_READS)


def calibrate(rows: Sequence[Row]) -> dict[str, EagerHost]:
    """A host per machine; its launch time from the named row where it is there."""
    hosts = {
        name: EagerHost.of(device, SHIPPED_DISPATCH[name], TILE_ROWS.get(name, 1))
        for name, device in DEVICES.items()
    }
    hardware, system = CALIBRATED
    named = {row.metric: row for row in rows if (row.hardware, row.system) == CALIBRATED}
    tokens, speedup = named.get("tokens_per_step"), named.get("speedup")
    target = public_model(speedup.target) if speedup else None
    if not (tokens and speedup and tokens.positive and speedup.positive and target):
        return hosts
    ratio = tokens.positive / speedup.positive
    low, high = 1e-6, 60e-6
    for _ in range(40):
        middle = (low + high) / 2.0
        host = EagerHost(hosts[hardware].device, middle, hosts[hardware].tile_rows)
        if step_cost_ratio(host, target, system, tokens.positive) < ratio:
            low = middle
        else:
            high = middle
    hosts[hardware] = EagerHost(hosts[hardware].device, low, hosts[hardware].tile_rows)
    return hosts
