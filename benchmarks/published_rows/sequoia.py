"""Sequoia (arXiv 2402.12374): what its rounds cost, and its tokens per round from a few chains.

Costs. The target runs eagerly (42 launches a layer, no `generate` around it), the draft model as a
captured graph, one run per level and one more to prepare the next round; the constants are two
printed times, 24.2 ms per plain step and 0.5 ms per draft step. With offloaded weights a round
waits for them once (5.7 s, printed) and for the arithmetic of its tree. No speedup sets a constant
of the costs.

Tokens per round, Llama2-7B <- 68M on C4 only: a Beta mixture over contexts, whose further ranks
take power-law shares of the misses, set per temperature by three rows: speedups of the chains of 8
and 32, tokens of the tree 5x8. It then says all other widths and depths, and the trees that
Sequoia's dynamic programme would choose. Other pairs and tasks have no such rows: their tokens are
given to the model, and their cost ratios predicted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from published_rows.eager_host import EagerHost, Pass
from published_rows.public_models import known_model, public_model
from published_rows.row import Prediction, Row, Unpredicted, index, key_of
from published_rows.sequoia_tokens import Chains, SweepCost, calibration_of, chains_of
from specplan.cost_models.models.model_shape import ModelShape

SOURCE = "2402.12374"
SWEEP = "SpecInfer (k independent sequences)"
TREES = ("Sequoia", "SpecInfer (Sequoia reimpl.)", SWEEP)
VERIFIERS = ("Sequoia verification", "SpecInfer verification", "top-k naive verification")
BASELINES = ("baseline AR", "draft AR", "baseline AR offload (DeepSpeed-Zero)")
SYSTEMS = (*TREES, *VERIFIERS, *BASELINES, "Sequoia growmap")

NAMES = ("system", "hardware", "target", "draft", "task", "setting")

LAYER, PLAIN_LAUNCHES = 42, 39
CONTEXT = 128
"""Tokens in the cache: prompts of 128 tokens, as the repository draws them."""

GLUE_LAUNCHES = 20
SAMPLED_LAUNCHES = 20
"""Per emitted token when sampling: the path is walked on the host, about two children a level, each
a handful of small operations and a read of its verdict."""

DRAFT_KERNEL_SECONDS = 3.6e-6
"""A kernel in a captured graph: (0.5 ms less 0.17 ms of products) / 92 others, 68M draft step."""

PLAIN_SECONDS = 24.2e-3
OFFLOADED_SECONDS = 5.7

TARGET, DRAFT = known_model("llama-2-7b"), known_model("llama-68m")
"""Of the sweep over widths and depths."""


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Costs and times where tokens are published, and tokens where a pair's chains are."""
    mine = [row for row in rows if SOURCE in row.source]
    given = index((row for row in mine if row.metric == "tokens_per_step"), *NAMES)
    chains = {t: chains_of(mine, t, sweep_cost(t)) for t in (0.0, 0.6)}
    for row in mine:
        tokens = given.get(key_of(row, *NAMES))
        if row.system in BASELINES:
            yield Unpredicted(row, "sets a constant of the model")
        elif row.metric == "speedup" and tokens is not None and tokens.positive and row.positive:
            yield from _cost(row, tokens.positive)
        elif row.metric == "time_per_token" and tokens is not None and tokens.positive:
            yield _time(row, tokens.positive)
        elif row.system == SWEEP and row.metric == "speedup" and "C4" in row.task:
            yield _sweep(row, chains)
        elif row.metric == "tokens_per_step":
            yield _tokens(row, chains)
        else:
            yield Unpredicted(row, "follows from other rows, or acceptance is not published")


def _cost(row: Row, tokens: float) -> Iterator[Prediction | Unpredicted]:
    ratio = cost_ratio(row, tokens)
    if ratio is None or row.positive is None:
        yield Unpredicted(row, "unknown hardware, model or tree")
        return
    published = row.deriving("step_cost_ratio", tokens / row.positive)
    yield Prediction(published, ratio)
    yield Prediction(row, tokens / ratio)


def _time(row: Row, tokens: float) -> Prediction | Unpredicted:
    """Seconds per token, in the row's unit."""
    ratio = cost_ratio(row, tokens)
    host, target = _host(row.hardware), public_model(row.target)
    unit = {"ms": 1e3, "s": 1.0}.get(row.unit)
    if ratio is None or host is None or target is None or unit is None:
        return Unpredicted(row, "unknown hardware, model, tree or unit")
    offloaded = "offload" in row.hardware
    plain = OFFLOADED_SECONDS if offloaded else plain_seconds(host, target)
    return Prediction(row, unit * plain * ratio / tokens)


def _sweep(row: Row, chains: dict[float, Chains]) -> Prediction | Unpredicted:
    width, depth = row.count("width", 128), row.count("depth", 128)
    temperature = row.get("temperature") or 0.0
    law = chains.get(temperature)
    if law is None or width is None or depth is None:
        return Unpredicted(row, "no chains of this temperature")
    speedup = sweep_cost(temperature).speedup(law.sequences(width, depth), width, depth)
    return Prediction(row, speedup, calibration=calibration_of(row))


def _tokens(row: Row, chains: dict[float, Chains]) -> Prediction | Unpredicted:
    law, tree = chains.get(row.get("temperature") or 0.0), tree_of(row)
    known = "7b" in row.target.lower() and "68m" in row.draft.lower() and row.task == "C4"
    if law is None or tree is None or not known or row.system not in TREES:
        return Unpredicted(row, "given to the model: no chains of this pair and task")
    tokens, levels = tree
    if "specinfer" in row.system.lower():
        value = law.sequences((tokens - 1) // (levels - 1), levels - 1)
    else:
        value = law.best_tree(tokens - 1, levels - 1)
    return Prediction(row, value, calibration=calibration_of(row))


def tree_of(row: Row) -> tuple[int, int] | None:
    """Tokens that a round verifies, root included, and its levels, root included."""
    size, levels = row.count("tree_size"), row.count("tree_depth")
    if size and levels:
        return (size, levels) if 1 < levels <= size else None
    match = re.fullmatch(r"(\d{1,3})x(\d{1,3})", str(row.setting.get("specinfer_width_x_depth")))
    if match:
        width, depth = (max(1, int(word)) for word in match.groups())
        return width * depth + 1, depth + 1
    return (128, 7) if row.system in VERIFIERS else None


def cost_ratio(row: Row, emitted: float) -> float | None:
    """Seconds of a round over those of a plain step."""
    tree, target = tree_of(row), public_model(row.target)
    draft_model = public_model(row.draft)
    host = _host(row.hardware)
    if tree is None or target is None or draft_model is None or host is None:
        return None
    tokens, levels = tree
    if "offload" in row.hardware:
        return _offloaded(host, target, draft_model, tokens, levels)
    verify = host.pass_seconds(target, Pass((tokens,), LAYER), CONTEXT)
    draft = draft_seconds(host, draft_model, tokens // levels)
    sampled = row.get("temperature") != 0.0
    glue = host.host_seconds(GLUE_LAUNCHES + (SAMPLED_LAUNCHES * emitted if sampled else 0.0))
    return (verify + levels * draft + glue) / plain_seconds(host, target)


@cache
def sweep_ratio(width: int, depth: int) -> float:
    """The same for `width` chains of `depth` tokens, 7B <- 68M on the A100, accepting greedily."""
    host = _host("A100")
    assert host is not None
    verify = host.pass_seconds(TARGET, Pass((width * depth + 1,), LAYER), CONTEXT)
    draft = draft_seconds(host, DRAFT, width)
    round_seconds = verify + (depth + 1) * draft + host.host_seconds(GLUE_LAUNCHES)
    return round_seconds / plain_seconds(host, TARGET)


def sweep_cost(temperature: float) -> SweepCost:
    """What rounds of the sweep cost at this temperature."""
    host = _host("A100")
    assert host is not None
    token = host.host_seconds(SAMPLED_LAUNCHES) / plain_seconds(host, TARGET)
    return SweepCost(sweep_ratio, token if temperature > 0.0 else 0.0)


def plain_seconds(host: EagerHost, target: ModelShape) -> float:
    """A plain step of eager `generate`."""
    plain = host.pass_seconds(target, Pass((1,), LAYER), CONTEXT)
    return plain + host.host_seconds(PLAIN_LAUNCHES)


def draft_seconds(host: EagerHost, draft: ModelShape, width: int) -> float:
    """One level of a draft model as a captured graph."""
    products = host.device.forward_seconds(draft, 1, max(1, width), CONTEXT).median
    return products + DRAFT_KERNEL_SECONDS * (draft.num_layers * (LAYER - 8) + 25)


def _offloaded(
    host: EagerHost, target: ModelShape, draft: ModelShape, tokens: int, levels: int
) -> float:
    """Streamed weights arrive once a round; its arithmetic is not hidden behind them."""
    device = host.device
    arithmetic = device.forward_seconds(target, 1, tokens, CONTEXT).median
    arithmetic -= device.forward_seconds(target, 1, 1, CONTEXT).median
    level = max(draft_seconds(host, draft, tokens // levels), plain_seconds(host, draft))
    return (OFFLOADED_SECONDS + arithmetic + levels * level) / OFFLOADED_SECONDS


@cache
def _host(hardware: str) -> EagerHost | None:
    names = {"A100": "a100-sxm-80gb", "L40": "l40"}
    name = next((device for word, device in names.items() if hardware.startswith(word)), None)
    if name is None:
        return None
    launches = TARGET.num_layers * LAYER + 25 + PLAIN_LAUNCHES
    return EagerHost.of(name, PLAIN_SECONDS / launches)
