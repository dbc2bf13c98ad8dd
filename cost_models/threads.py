"""The price of a request that branches: several requests that share a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import Device
from specplan.cost_models.estimate import Pricer
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.ir.plan import Plan


@dataclass(frozen=True)
class Load:
    """The threads of a request.

    Attributes:
        count: threads.
        prefix_tokens: that all their prompts begin with, at least one.
        own_tokens: of each prompt after that, at least one.
        output_tokens: of each thread.
    """

    count: int
    prefix_tokens: int
    own_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class ThreadsPrice:
    """What a request costs that branches, and what its texts cost as requests of their own.

    Attributes:
        at_once: seconds, prompts included; the prefix is read once and copied.
        in_turn: of as many requests one after another, each of which reads its whole prompt.
    """

    at_once: Seconds
    in_turn: Seconds

    @property
    def gain(self) -> float:
        """How many times as fast it is to run them at once."""
        return float(self.in_turn.median / self.at_once.median)


def price_threads(
    plan: Plan,
    device: Device,
    shapes: Mapping[str, ModelShape],
    acceptance: AcceptanceProfile | None,
    load: Load,
) -> ThreadsPrice | Unpriced:
    """Price a plan for a request that branches.

    Args:
        plan: of each thread.
        device: what it runs on.
        shapes: by the models' names in the plan.
        acceptance: of the plan's drafter; None for plans that draft nothing.
        load: the threads.

    Returns:
        The price, or why there is none.
    """
    prompt, output = load.prefix_tokens + load.own_tokens, load.output_tokens
    first, alone = (
        Pricer(device, shapes, 1, size, output) for size in (load.prefix_tokens, prompt)
    )
    together = Pricer(device, shapes, load.count, prompt, output, cached_prefix=load.prefix_tokens)
    at_once, one = together.estimate(plan, acceptance), alone.estimate(plan, acceptance)
    if isinstance(at_once, Unpriced):
        return at_once
    if isinstance(one, Unpriced):
        return one
    return ThreadsPrice(
        at_once=first.prefill(plan) + at_once.request_seconds,
        in_turn=one.request_seconds * float(load.count),
    )
