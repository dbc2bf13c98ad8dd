"""The server of a problem, and the devices that read its prompts elsewhere."""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.devices.device import device_count, load_device
from specplan.cost_models.devices.parallel import NODE_LINK
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.serving.pool import PrefillPool
from specplan.cost_models.serving.server import Server, server_of
from specplan.ir.errors import UsageError
from specplan.planner.problem.schema import Problem


def server_as_stated(problem: Problem) -> Server:
    """How requests are batched: as a problem states, else as its backend does."""
    serving = problem.serving
    stated = serving.model_dump(exclude={"burstiness", "pool"}, exclude_none=True)
    if serving.pool is not None:
        stated |= {"prefill": "elsewhere", "readers": serving.pool.replicas}
    return replace(server_of(problem.backend.partition("@")[0]), **stated)


def pool_of(problem: Problem, target: ModelShape, longest: int) -> PrefillPool | None:
    """The devices that read prompts elsewhere; None where the problem states none.

    Args:
        problem: a problem.
        target: its target, which each group of them holds.
        longest: prompt, in tokens.

    Raises:
        UsageError: one group does not hold the target and the caches of a prompt.
    """
    stated = problem.serving.pool
    if stated is None:
        return None
    device = load_device(stated.device, problem.backend)
    needed = target.weight_bytes + longest * target.kv_bytes_per_token + target.state_bytes
    if needed > device.memory_bytes:
        raise UsageError(
            f"the target and one prompt take {needed / 1e9:.3g} GB, {stated.device} has "
            f"{device.memory_bytes / 1e9:.3g} GB",
            where="serving.pool.device",
            remedy="Name more devices that share each layer, such as 2xh100-sxm.",
        )
    links = NODE_LINK * device_count(stated.device)
    return PrefillPool(device, stated.replicas, stated.bandwidth or links)


def pool_words(pool: PrefillPool) -> str:
    """What reads prompts, in words."""
    groups = f"{pool.replicas} groups of " if pool.replicas > 1 else ""
    return (
        f"prompts are read by {groups}{pool.device.name}, and their caches move at "
        f"{pool.bandwidth / 1e9:.3g} GB/s"
    )
