"""What a plan is worth: a round's price over the tokens it emits, and whole requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specplan.cost_models.acceptance import AcceptanceProfile
from specplan.cost_models.cost import Cost
from specplan.cost_models.device import Device, UnpricedError
from specplan.cost_models.intervals import Interval, Seconds, total
from specplan.cost_models.memory import PlanMemory, plan_memory
from specplan.cost_models.model_shape import ModelShape
from specplan.cost_models.pricing import PricedOp, Unpriced, price_round
from specplan.cost_models.round_types import round_types
from specplan.ir.infer import InferenceError, RoundTypes
from specplan.ir.ops import Accept, Forward
from specplan.ir.plan import CacheState, Plan
from specplan.ir.schedule import select_round
from specplan.ir.types import NodesType, TreeType


@dataclass(frozen=True, slots=True)
class Estimate:
    """The price of a plan for a batch of equal requests.

    Attributes:
        batch: requests that run together.
        prompt_tokens: of each request.
        output_tokens: of each request.
        seconds_per_round: at the mean context of a request.
        tokens_per_round: emitted by one request, the bonus included.
        seconds_per_token: of one request while decoding.
        tokens_per_second: of the whole batch while decoding.
        ttft: time to first token: the prefill and one round.
        prefill: time of the prompts, in all models.
        rounds: until the slowest request of the batch is done.
        decode_seconds: all rounds.
        request_seconds: prefill and all rounds.
        tokens_per_second_end_to_end: output tokens of the batch over `request_seconds`.
        memory: bytes, part by part.
        breakdown: where a round's time goes.
        cost: resources of a round's forwards.
        assumptions: what was taken for granted, in words.
        extrapolated: some time lies outside of what was measured.
    """

    batch: int
    prompt_tokens: int
    output_tokens: int
    seconds_per_round: Seconds
    tokens_per_round: Interval
    seconds_per_token: Seconds
    tokens_per_second: Interval
    ttft: Seconds
    prefill: Seconds
    rounds: Interval
    decode_seconds: Seconds
    request_seconds: Seconds
    tokens_per_second_end_to_end: Interval
    memory: PlanMemory
    breakdown: tuple[PricedOp, ...]
    cost: Cost
    assumptions: tuple[str, ...]
    extrapolated: bool


def price_plan(
    plan: Plan,
    device: Device,
    shapes: Mapping[str, ModelShape],
    acceptance: AcceptanceProfile | None,
    *,
    batch: int,
    prompt_tokens: int,
    output_tokens: int,
) -> Estimate | Unpriced:
    """Price a plan for a batch of requests that start together.

    Args:
        plan: a verified plan.
        device: what it runs on.
        shapes: by the model's name in the plan.
        acceptance: of the plan's proposer; None for plans that draft nothing.
        batch: requests.
        prompt_tokens: of each request.
        output_tokens: of each request.

    Returns:
        The estimate, or why there is none.
    """
    context = prompt_tokens + output_tokens / 2.0
    item = plan.round(select_round(plan, batch=batch, context=round(context)))
    try:
        types = round_types(plan, item)
    except InferenceError as error:
        return Unpriced("", str(error))
    tree = _judged_tree(types, acceptance)
    if isinstance(tree, Unpriced):
        return tree
    parents, ranks = tree.parents or (), tree.ranks or ()
    tokens, rounds = Interval.exact(1.0), Interval.exact(float(output_tokens))
    lag: dict[str, float] = {}
    if acceptance is not None and parents:
        tokens = acceptance.tokens_per_round(parents, ranks)
        rounds = acceptance.rounds(parents, ranks, output_tokens, batch)
        ends = acceptance.end_shares(parents, ranks)
        lag = lag_probabilities(types, tree, ends, batch)
    price = price_round(plan, item, device, shapes, batch, context, lag)
    if isinstance(price, Unpriced):
        return price
    try:
        prefill = prefill_seconds(plan, device, shapes, batch, prompt_tokens)
    except UnpricedError as error:
        return Unpriced("prefill", str(error))
    assumptions = price.assumptions
    if plan.schedule is not None:
        assumptions += (f"round {item.name!r} runs throughout",)
    if acceptance is not None and acceptance.positions == 0 and batch > 1:
        assumptions += ("requests of a batch are alike",)
    decode = price.seconds.times(rounds)
    request = prefill + decode
    return Estimate(
        batch=batch,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        seconds_per_round=price.seconds,
        tokens_per_round=tokens,
        seconds_per_token=price.seconds.times(_inverse(tokens)),
        tokens_per_second=_rate(batch, price.seconds.times(_inverse(tokens))),
        ttft=prefill + price.seconds,
        prefill=prefill,
        rounds=rounds,
        decode_seconds=decode,
        request_seconds=request,
        tokens_per_second_end_to_end=_rate(batch * output_tokens, request),
        memory=plan_memory(plan, shapes, batch, prompt_tokens + output_tokens, prompt_tokens),
        breakdown=price.breakdown,
        cost=price.cost,
        assumptions=assumptions,
        extrapolated=request.extrapolated,
    )


def prefill_seconds(
    plan: Plan,
    device: Device,
    shapes: Mapping[str, ModelShape],
    batch: int,
    prompt_tokens: int,
) -> Seconds:
    """The prompts through every model that keeps a cache of its own.

    The last token of a prompt is the root of the first round; a prefill is nevertheless known
    by the whole prompt's length.

    Raises:
        UnpricedError: the device cannot say, or a model's shape is missing.
    """
    models = [
        state.model for state in plan.states if isinstance(state, CacheState) and not state.view
    ]
    missing = [name for name in models if name not in shapes]
    if missing:
        raise UnpricedError(f"the shape of model {missing[0]!r} is not known")
    if prompt_tokens <= 1:
        return Seconds.exact(0.0)
    return total(device.prefill_seconds(shapes[name], batch, prompt_tokens) for name in models)


def lag_probabilities(
    types: RoundTypes,
    tree: TreeType,
    end_shares: tuple[float, ...],
    batch: int,
) -> dict[str, float]:
    """Per cache, P(some request of the batch has more pending than the root).

    A request lags where its accepted path ended at a node that the cache's model never ran;
    node numbers keep their meaning while trees only grow, else 1 is assumed.
    """
    reshaped = {step.op.keyword for step in types.steps} & {
        "prune", "graft", "reroot", "adopt", "relabel", "load"
    }  # fmt: skip
    if reshaped:
        return {}
    resident: dict[str, set[int]] = {}
    for step in types.steps:
        if isinstance(step.op, Forward) and step.op.cache is not None:
            ran = resident.setdefault(str(step.op.cache), set())
            for held in step.reads.values():
                if isinstance(held, TreeType):
                    ran |= set(range(held.nodes))
                elif isinstance(held, NodesType):
                    ran |= set(held.indices or ())
    found = {}
    for cache, ran in resident.items():
        share = sum(end_shares[node + 1] for node in range(tree.nodes) if node not in ran)
        found[cache] = 1.0 - (1.0 - min(1.0, share)) ** batch
    return found


def _judged_tree(types: RoundTypes, acceptance: AcceptanceProfile | None) -> TreeType | Unpriced:
    judged = [step for step in types.steps if isinstance(step.op, Accept)]
    if len(judged) != 1:
        return Unpriced("", f"rounds that judge {len(judged)} times have no acceptance law yet")
    step = judged[0]
    assert isinstance(step.op, Accept)
    tree = step.reads[step.op.tree]
    assert isinstance(tree, TreeType)
    if tree.parents is None or tree.ranks is None:
        return Unpriced("", "trees whose shape depends on data have no acceptance law yet")
    if tree.parents and acceptance is None:
        return Unpriced("", "the plan drafts, and no acceptance profile is given")
    return tree


def _inverse(tokens: Interval) -> Interval:
    return Interval(1.0 / tokens.mean, 1.0 / tokens.high, 1.0 / tokens.low)


def _rate(tokens: float, seconds: Seconds) -> Interval:
    """Tokens per second; a time without lower bound is taken to be at least 1 % of its median."""
    least = max(seconds.low, 0.01 * seconds.median)
    return Interval(tokens / seconds.median, tokens / seconds.high, tokens / least)
