"""Estimates of a plan: the time of a round over the tokens it emits, and whole requests.

Where rounds change with the place in an output, a round is the mean one (`segments`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cells import chosen, split
from specplan.cost_models.cost import Quantity, minimum
from specplan.cost_models.devices.device import Device, UnpricedError
from specplan.cost_models.forecast import rate
from specplan.cost_models.intervals import Interval, Seconds, total
from specplan.cost_models.memory.by_cell import memory_by_cell
from specplan.cost_models.memory.plan_memory import PlanMemory, plan_memory
from specplan.cost_models.memory.runtime import Runtime, runtime_of
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.prefill import observing_seconds, prefill_seconds
from specplan.cost_models.rounds.pricer import RoundPricer
from specplan.cost_models.rounds.pricing import PricedOp, Unpriced, own_error
from specplan.cost_models.rounds.segments import (
    Drafted,
    OutputSegment,
    assumed_of,
    price_decode,
    read_drafted,
    read_segments,
)
from specplan.cost_models.serving.pool import PrefillPool
from specplan.ir.plan import Plan


@dataclass(frozen=True, slots=True)
class Estimate:
    """The price of a plan for a batch of equal requests, or for many of them at once.

    Quantities are numbers or arrays [cells]; `cells` splits them.

    Attributes:
        batch: requests that run together.
        prompt_tokens: of each request.
        output_tokens: of each request.
        seconds_per_round: at the mean context of a request; of the mean round.
        tokens_per_round: emitted by one request, the bonus included.
        seconds_per_token: of one request while decoding.
        decode_tokens_per_second: of the whole batch while decoding.
        ttft: time to first token: the prefill and the first round.
        prefill: time of the prompts, in all models.
        rounds: until the slowest request of the batch is done.
        decode_seconds: all rounds.
        request_seconds: prefill and all rounds.
        tokens_per_second: output tokens of the batch over `request_seconds`, prompts included.
        prompts: how many prompts the acceptance was measured on; 0 if unknown.
        memory: bytes, part by part.
        breakdown: where a round's time goes.
        assumptions: what was taken for granted, in words.
        extrapolated: some time lies outside of what was measured.
        shared_error: of the device, the relative half width that all its times have in common.
        own_error: of a round, the relative half width that is not shared; see `own_error`.
        measured: whether this very plan was measured there, which its times then rest on.
        first_round: time of the first round in mean ones.
        segments: of the output, each emitted by one round; none of a schedule by load.
        transfer: seconds of the prefill in which the caches of one prompt come from other devices.
    """

    batch: Quantity
    prompt_tokens: Quantity
    output_tokens: int
    seconds_per_round: Seconds
    tokens_per_round: Interval
    seconds_per_token: Seconds
    decode_tokens_per_second: Interval
    ttft: Seconds
    prefill: Seconds
    rounds: Interval
    decode_seconds: Seconds
    request_seconds: Seconds
    tokens_per_second: Interval
    prompts: int
    memory: PlanMemory
    breakdown: tuple[PricedOp, ...]
    assumptions: tuple[str, ...]
    extrapolated: bool
    shared_error: Quantity = 0.0
    own_error: Quantity = 0.0
    measured: Quantity = False
    first_round: Quantity = 1.0
    segments: tuple[OutputSegment, ...] = ()
    transfer: Quantity = 0.0

    def cells(self) -> tuple[Estimate, ...]:
        """One estimate of plain numbers for each cell."""
        if not isinstance(self.batch, np.ndarray):
            return (self,)
        return tuple(split(self, len(self.batch)))


@dataclass
class Pricer:
    """Prices plans for batches of equal requests; what several plans share is priced once.

    Attributes:
        device: what the plans run on.
        shapes: by the model's name in the plans.
        batch: requests that run together, a number or an array [cells].
        prompt_tokens: of each request, a number or an array [cells].
        output_tokens: of each request.
        longest: prompt and text of the longest request, in tokens, for the memory; default that
            of the requests that are priced.
        cached_prefix: tokens at the start of every prompt whose keys and values are in all caches
            already, at most all of a prompt but its last token: they take memory and are attended
            to, but are not computed.
        runtime: how memory is used; default that of the device.
        pool: other devices that read the prompts; None where the device does.
    """

    device: Device
    shapes: Mapping[str, ModelShape]
    batch: Quantity
    prompt_tokens: Quantity
    output_tokens: int
    longest: tuple[int, int] | None = None
    cached_prefix: int = 0
    runtime: Runtime | None = None
    pool: PrefillPool | None = None

    @cached_property
    def round_pricer(self) -> RoundPricer:
        """What prices rounds at the mean context of these requests."""
        return self._round_pricer_at(self.output_tokens / 2.0)

    def _round_pricer_at(self, emitted: float) -> RoundPricer:
        if emitted not in self._round_pricers:
            context = self.prompt_tokens + emitted
            self._round_pricers[emitted] = RoundPricer(
                self.device, self.shapes, self.batch, context
            )
        return self._round_pricers[emitted]

    @cached_property
    def _round_pricers(self) -> dict[float, RoundPricer]:
        return {}

    def estimate(self, plan: Plan, acceptance: AcceptanceProfile | None) -> Estimate | Unpriced:
        """Price a plan; the estimate's numbers are arrays where the pricer's are.

        Args:
            plan: a verified plan; all cells must run the same rounds of it.
            acceptance: of the plan's drafter; None for plans that draft nothing.

        Returns:
            The estimate, or why there is none.

        Raises:
            ValueError: cells run different rounds.
        """
        drafted = self.drafted(plan, acceptance)
        return drafted if isinstance(drafted, Unpriced) else self.worth(plan, drafted)

    def drafted(self, plan: Plan, acceptance: AcceptanceProfile | None) -> Drafted | Unpriced:
        """What a plan's rounds draft, segment by segment of an output; see `estimate`."""
        context = self.prompt_tokens + self.output_tokens / 2.0
        segments = read_segments(plan, self.batch, context, self.output_tokens)
        evidence = None if acceptance is None else acceptance.evidence
        return read_drafted(plan, segments, evidence)

    def worth(self, plan: Plan, drafted: Drafted) -> Estimate | Unpriced:
        """Price a plan by what its rounds draft; see `estimate`."""
        priced = price_decode(
            drafted, lambda part: self._round_pricer_at((part.start + part.stop) / 2.0), self.batch
        )
        if isinstance(priced, Unpriced):
            return priced
        try:
            prefill = self.prefill(plan)
        except UnpricedError as error:
            return Unpriced("prefill", str(error))
        per_round, tokens = priced.round.seconds, priced.tokens_per_round
        per_token = per_round.times(tokens.inverse)
        decode = per_round.times(priced.rounds)
        request = prefill + decode
        return Estimate(
            batch=self.batch,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            seconds_per_round=per_round,
            tokens_per_round=tokens,
            seconds_per_token=per_token,
            decode_tokens_per_second=rate(self.batch, per_token),
            ttft=prefill + per_round * priced.first_round,
            prefill=prefill,
            rounds=priced.rounds,
            decode_seconds=decode,
            request_seconds=request,
            tokens_per_second=rate(self.batch * self.output_tokens, request),
            prompts=max(one.evidence.prompts if one.evidence else 0 for _, one in drafted),
            memory=self.memory(plan),
            breakdown=priced.round.breakdown,
            assumptions=(*priced.round.assumptions, *assumed_of(plan, drafted, self.batch)),
            extrapolated=request.extrapolated,
            shared_error=self.device.shared_error,
            own_error=own_error(priced.round, self.device.shared_error),
            first_round=priced.first_round,
            segments=priced.segments,
            transfer=self.transfer(plan),
        )

    def composed(
        self,
        plan: Plan,
        parts: Sequence[Estimate],
        which: NDArray[np.int64],
        alone: NDArray[np.bool_],
    ) -> Estimate:
        """The price of a schedule: in each cell that of the round which runs there.

        Args:
            plan: the schedule; all its models read the prompts, and all its caches take memory.
            parts: of the plans whose rounds it is made of, priced by this pricer.
            which: index into `parts` of each cell, [cells].
            alone: in which cells only the models of the round that runs there are loaded, [cells].
        """
        picked = chosen(parts, which)
        prefill = chosen([self.prefill(plan), picked.prefill], alone.astype(np.int64))
        memories = [self.memory(plan), *(part.memory for part in parts)]
        memory = memory_by_cell(memories, np.where(alone, which + 1, 0))
        request = prefill + picked.decode_seconds
        return replace(
            picked,
            ttft=prefill + picked.seconds_per_round * picked.first_round,
            prefill=prefill,
            request_seconds=request,
            tokens_per_second=rate(self.batch * self.output_tokens, request),
            memory=memory,
            breakdown=(),
            extrapolated=request.extrapolated,
            segments=(),
            transfer=np.where(alone, picked.transfer, self.transfer(plan)),
        )

    def prefill(self, plan: Plan) -> Seconds:
        """The prompts through every model that keeps a cache of its own; remembered by model.

        The last token of a prompt is the root of the first round; a prefill is nevertheless known
        by the whole prompt's length.

        Raises:
            UnpricedError: the device cannot say.
        """
        states, shape = plan.caches, self.round_pricer.shape
        models = [state.model for state in states if not state.view]
        reader = self.device if self.pool is None else self.pool.device
        cached = minimum(self.cached_prefix, self.prompt_tokens - 1)
        for model in set(models) - set(self._prefills):
            self._prefills[model] = prefill_seconds(
                reader, shape(model), self.batch, self.prompt_tokens, cached
            )
        observed = observing_seconds(reader, shape, self.batch, states, self.prompt_tokens)
        moved = Seconds.exact(self.transfer(plan))
        return total([*(self._prefills[model] for model in models), *observed, moved])

    def transfer(self, plan: Plan) -> Quantity:
        """Seconds in which the caches of one prompt come from the pool; 0 without one."""
        if self.pool is None:
            return 0.0
        shapes = [self.round_pricer.shape(one.model) for one in plan.caches if not one.view]
        return self.pool.transfer_seconds(shapes, self.prompt_tokens - self.cached_prefix)

    @cached_property
    def _prefills(self) -> dict[str, Seconds]:
        return {}

    def memory(self, plan: Plan) -> PlanMemory:
        """What the plan needs, for all cells at once."""
        own = self.prompt_tokens, self.prompt_tokens + self.output_tokens
        prompt, text = self.longest or own
        runtime = self.runtime or runtime_of(self.device)
        return plan_memory(plan, self.shapes, self.batch, text, prompt, runtime)
