"""What a plan is worth: a round's price over the tokens it emits, and whole requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specplan.cost_models.acceptance import AcceptanceProfile
from specplan.cost_models.clock import Clock
from specplan.cost_models.cost import Cost
from specplan.cost_models.device import Device, UnpricedError
from specplan.cost_models.drafting import read_drafting
from specplan.cost_models.forecast import rate
from specplan.cost_models.intervals import Interval, Seconds, total
from specplan.cost_models.memory import PlanMemory, plan_memory
from specplan.cost_models.model_shape import ModelShape
from specplan.cost_models.pricing import PricedOp, Unpriced, price_round
from specplan.ir.plan import CacheState, Plan, Round
from specplan.ir.schedule import select_round


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
        prompts: how many prompts the acceptance was measured on; 0 when nobody said.
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
    prompts: int
    memory: PlanMemory
    breakdown: tuple[PricedOp, ...]
    cost: Cost
    assumptions: tuple[str, ...]
    extrapolated: bool


@dataclass
class Pricer:
    """Prices plans for requests of one length; what several plans share is priced once.

    Attributes:
        device: what the plans run on.
        shapes: by the model's name in the plans.
        prompt_tokens: of each request.
        output_tokens: of each request.
    """

    device: Device
    shapes: Mapping[str, ModelShape]
    prompt_tokens: int
    output_tokens: int
    _clocks: dict[int, Clock] = field(default_factory=dict)

    def estimate(
        self, plan: Plan, acceptance: AcceptanceProfile | None, batch: int
    ) -> Estimate | Unpriced:
        """Price a plan for a batch of requests that start together.

        Args:
            plan: a verified plan.
            acceptance: of the plan's proposer; None for plans that draft nothing.
            batch: requests.

        Returns:
            The estimate, or why there is none.
        """
        clock = self.clock(batch)
        item = plan.round(select_round(plan, batch=batch, context=round(clock.context)))
        drafting = read_drafting(plan, item, acceptance)
        if isinstance(drafting, Unpriced):
            return drafting
        price = price_round(drafting.demands, clock, drafting.lag(batch))
        if isinstance(price, Unpriced):
            return price
        try:
            prefill = prefill_seconds(plan, self.device, self.shapes, batch, self.prompt_tokens)
        except UnpricedError as error:
            return Unpriced("prefill", str(error))
        tokens, rounds = drafting.tokens_per_round, drafting.rounds(self.output_tokens, batch)
        per_token = price.seconds.times(tokens.inverse)
        decode = price.seconds.times(rounds)
        request = prefill + decode
        text = self.prompt_tokens + self.output_tokens
        return Estimate(
            batch=batch,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            seconds_per_round=price.seconds,
            tokens_per_round=tokens,
            seconds_per_token=per_token,
            tokens_per_second=rate(batch, per_token),
            ttft=prefill + price.seconds,
            prefill=prefill,
            rounds=rounds,
            decode_seconds=decode,
            request_seconds=request,
            tokens_per_second_end_to_end=rate(batch * self.output_tokens, request),
            prompts=0 if drafting.acceptance is None else drafting.acceptance.prompts,
            memory=plan_memory(plan, self.shapes, batch, text, self.prompt_tokens),
            breakdown=price.breakdown,
            cost=price.cost,
            assumptions=(*price.assumptions, *_assumptions(plan, item, acceptance, batch)),
            extrapolated=request.extrapolated,
        )

    def clock(self, batch: int) -> Clock:
        """What prices rounds of a batch at the mean context of these requests."""
        if batch not in self._clocks:
            context = self.prompt_tokens + self.output_tokens / 2.0
            self._clocks[batch] = Clock(self.device, self.shapes, batch, context)
        return self._clocks[batch]


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
    """Price one plan; see `Pricer`, which prices several sooner."""
    return Pricer(device, shapes, prompt_tokens, output_tokens).estimate(plan, acceptance, batch)


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


def _assumptions(
    plan: Plan, item: Round, acceptance: AcceptanceProfile | None, batch: int
) -> tuple[str, ...]:
    words = (
        (f"round {item.name!r} runs throughout", plan.schedule is not None),
        (
            "requests of a batch are alike",
            acceptance is not None and acceptance.positions == 0 and batch > 1,
        ),
    )
    return tuple(word for word, holds in words if holds)
