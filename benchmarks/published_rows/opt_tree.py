"""OPT-Tree (arXiv 2406.17276): what rounds with fixed trees cost on an RTX 4090 and an L20.

Binary and EAGLE trees have five levels, so five passes of the draft model and one of the target,
run eagerly. One constant for both machines, the seconds to launch a kernel, calibrated on one row:
EAGLE's tree of a 1B draft model on the RTX 4090. OPT-Tree itself stops at another depth in every
context, which the paper does not report, so that its rounds cannot be priced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from published_rows.eager_host import EagerHost, Pass
from published_rows.public_models import known_model, public_model
from published_rows.row import Prediction, Row, Unpredicted, index, key_of
from published_rows.spec_bench_methods import (
    LAYER,
    PLAIN,
    PLAIN_LAUNCHES,
    PLAIN_READS,
    TREE_GLUE,
    TREE_LAYER,
    TREE_READS,
    eagle_draft,
)
from specplan.cost_models.models.model_shape import ModelShape

SOURCE = "2406.17276"
BINARY, STATIC = "binary tree", "EAGLE static tree (25 nodes)"
VANILLA = "vanilla AR"
SYSTEMS = (BINARY, STATIC, "OPT-Tree", VANILLA)

NODES = {BINARY: 31, STATIC: 26}
LEVELS = 5
CONTEXT = 500

DEVICES = {"1xRTX4090": "rtx-4090", "1xL20": "l20"}
DRAFTS = {"Llama-68M": known_model("llama-68m"), "Llama-1B": known_model("tinyllama-1.1b")}
SHIPPED_DISPATCH = 14.3e-6
CALIBRATED = ("1xRTX4090", STATIC, "Llama-1B", "MT-Bench")


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Step-cost ratios, speedups and rates of fixed trees, given their tokens per round."""
    mine = [row for row in rows if SOURCE in row.source]
    names = ("system", "hardware", "target", "draft", "task", "setting")
    given = index((r for r in mine if r.metric == "mean_acceptance_length"), *names)
    hosts = _hosts(mine, given, names)
    for row in mine:
        key = key_of(row, *names)
        tokens = given.get(key)
        if row.metric == "mean_acceptance_length":
            yield Unpredicted(row, "given to the model")
        elif row.metric == "tokens_per_s" and row.system in (*NODES, VANILLA):
            yield _rate(row, tokens, hosts)
        elif row.system not in NODES:
            yield Unpredicted(row, "the depth of its rounds is not published")
        elif row.metric == "speedup" and tokens is not None and tokens.positive and row.positive:
            yield from _predict(row, tokens.positive, hosts)


def _predict(
    row: Row, tokens: float, hosts: dict[str, EagerHost]
) -> Iterator[Prediction | Unpredicted]:
    host, target = hosts.get(row.hardware), public_model(row.target)
    known = row.draft in DRAFTS or row.draft == "EAGLE"
    if host is None or target is None or not known or row.positive is None:
        yield Unpredicted(row, "unknown hardware or models")
        return
    ratio = cost_ratio(host, target, row.draft, NODES[row.system])
    named = _is_calibration(row)
    published = row.deriving("step_cost_ratio", tokens / row.positive)
    yield Prediction(published, ratio, calibration=named)
    yield Prediction(row, tokens / ratio, calibration=named)


def _rate(row: Row, tokens: Row | None, hosts: dict[str, EagerHost]) -> Prediction | Unpredicted:
    """Tokens per second: of plain decoding, or of rounds with published tokens."""
    host, target = hosts.get(row.hardware), public_model(row.target)
    emitted = 1.0 if row.system == VANILLA else tokens and tokens.positive
    known = row.system == VANILLA or row.draft in DRAFTS or row.draft == "EAGLE"
    if host is None or target is None or not emitted or not known:
        return Unpredicted(row, "unknown hardware or models")
    seconds = plain_seconds(host, target)
    if row.system != VANILLA:
        seconds *= cost_ratio(host, target, row.draft, NODES[row.system])
    return Prediction(row, emitted / seconds, calibration=_is_calibration(row))


def plain_seconds(host: EagerHost, target: ModelShape) -> float:
    """A plain step of `generate`."""
    plain = host.pass_seconds(target, PLAIN, CONTEXT)
    return plain + host.host_seconds(PLAIN_LAUNCHES, PLAIN_READS)


def cost_ratio(host: EagerHost, target: ModelShape, draft: str, nodes: int) -> float:
    """Seconds of a round over those of a plain step."""
    round_seconds = host.pass_seconds(target, Pass((nodes,), TREE_LAYER), CONTEXT)
    round_seconds += host.host_seconds(TREE_GLUE, TREE_READS)
    if draft in DRAFTS:
        level = host.pass_seconds(DRAFTS[draft], Pass((8,), LAYER), CONTEXT)
        level += host.host_seconds(PLAIN_LAUNCHES, PLAIN_READS)
    else:
        level = host.pass_seconds(target, eagle_draft(8), CONTEXT)
    return (round_seconds + LEVELS * level) / plain_seconds(host, target)


def _is_calibration(row: Row) -> bool:
    return (row.hardware, row.system, row.draft, row.task) == CALIBRATED and row.get(
        "temperature"
    ) == 0.0


def _hosts(
    rows: Sequence[Row], given: dict[tuple[object, ...], Row], names: tuple[str, ...]
) -> dict[str, EagerHost]:
    """A host per machine, with one launch time for all."""
    dispatch = SHIPPED_DISPATCH
    for row in rows:
        if row.metric == "speedup" and _is_calibration(row) and row.positive:
            tokens = given.get(key_of(row, *names))
            target = public_model(row.target)
            if tokens is not None and tokens.positive and target is not None:
                dispatch = _dispatch(target, row.draft, tokens.positive / row.positive)
    return {name: EagerHost.of(device, dispatch) for name, device in DEVICES.items()}


def _dispatch(target: ModelShape, draft: str, ratio: float) -> float:
    """The launch time at which the calibration row has its ratio."""
    machine = DEVICES[CALIBRATED[0]]
    low, high = 1e-6, 60e-6
    for _ in range(40):
        middle = (low + high) / 2.0
        if cost_ratio(EagerHost.of(machine, middle), target, draft, NODES[STATIC]) < ratio:
            low = middle
        else:
            high = middle
    return low
