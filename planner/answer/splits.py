"""How the target may be split over the problem's devices, and which split serves more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specplan.ir.errors import InfeasibleError, SpecplanError, UsageError

if TYPE_CHECKING:
    from specplan.cost_models.devices.parallel import SplitPrice
    from specplan.cost_models.devices.pools import PoolPrice
    from specplan.planner.problem.schema import Problem

WORTH_A_WORD = 1.1
"""How many times the tokens/s another split must give to be named beside a decision."""


@dataclass(frozen=True)
class Splits:
    """Splits of a problem's target.

    Attributes:
        device: as the problem names it.
        count: devices.
        tokens: of a request, half of its output done.
        prices: every split that fits, at several numbers of requests.
        pools: of the devices, one or two, prompts included; empty for one device.
    """

    device: str
    count: int
    tokens: int
    prices: Sequence[SplitPrice]
    pools: Sequence[PoolPrice] = ()


def compared_splits(problem: Problem, pools: bool = False) -> Splits:
    """All splits, at the problem's batch sizes and at powers of four.

    Args:
        problem: a problem of a device with a data sheet.
        pools: compare one pool and two, too.

    Raises:
        UsageError: the device is not known from a data sheet.
        InfeasibleError: no split holds the model and its requests.
    """
    from specplan.cost_models.devices.device import device_count, load_device, one_device
    from specplan.cost_models.devices.parallel import search_splits
    from specplan.cost_models.devices.pools import PoolSearch
    from specplan.cost_models.devices.roofline import AnalyticDevice

    device = load_device(one_device(problem.device), problem.backend)
    if not isinstance(device, AnalyticDevice):
        raise UsageError(
            "splits can be compared only on devices with a data sheet",
            where="device",
            remedy="Name one of `specplan devices`, with a number before it: 8xh200.",
        )
    stored, work = problem.models.target, problem.workload
    shape = stored.shape("target")
    prompts = work.prompt_tokens
    longest = max(prompts) if isinstance(prompts, Sequence) else int(prompts or 0)
    tokens = longest + (work.output_tokens or 0) // 2
    requests = tuple(sorted({1, *work.batch_sizes, *(4**power for power in range(1, 6))}))
    count = device_count(problem.device)
    prices = search_splits(shape, device, count, requests, tokens)
    if not prices:
        raise InfeasibleError(
            f"no split of the target fits on {problem.device}",
            where="device",
            remedy="Take more devices, or weights in fewer bits (weight_format).",
        )
    if not pools or count == 1:
        return Splits(problem.device, count, tokens, prices)
    every = PoolSearch(shape, device, count, longest, work.output_tokens or 1).prices(requests)
    return Splits(problem.device, count, tokens, prices, every)


def better_split(problem: Problem) -> str | None:
    """What another split of the devices than all in one group would serve at the largest batch.

    None where the devices are one or measured, where one group is about as good, or does not hold
    the model.
    """
    try:
        splits = compared_splits(problem)
    except SpecplanError:
        return None
    largest = max(problem.workload.batch_sizes)
    prices = [one for one in splits.prices if one.requests == largest]
    whole = [one for one in prices if one.split.tensor == splits.count]
    together = next((one for one in whole if not one.split.attention_copies), None)
    if together is None:
        return None
    best = max(prices, key=lambda one: one.per_device)
    more = best.per_device / together.per_device
    if more < WORTH_A_WORD:
        return None
    slower = f"TPOT {1e3 * best.tpot:.3g} ms for {1e3 * together.tpot:.3g} ms"
    return (
        f"{best.split} instead of {together.split}: {more:.2g}x the tokens/s "
        f"at {largest} requests, {slower}, without speculation"
    )
