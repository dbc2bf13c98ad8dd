"""What an engine's module is given to write the files of a plan: what the problem states of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from specplan.backends.engines.job import Job, Load
from specplan.cost_models.devices.device import device_count
from specplan.cost_models.serving.server import server_of
from specplan.ir.plan import MODULE_PREFIX
from specplan.planner.serving.pools import server_as_stated

if TYPE_CHECKING:
    from specplan.backends.engines.table import Table
    from specplan.ir.plan import Plan
    from specplan.planner.problem.schema import Problem, Workload

DECODES_ONLY = "This server decodes; those that read its prompts and move caches are not written."
_PREFILLS = {
    "chunked": "in chunks, along with decoding steps",
    "first": "whole, before the next decoding step",
}


def job_of(table: Table, problem: Problem, plan: Plan, loads: tuple[Load, ...] = ()) -> Job:
    """What an engine's module is given to write the files of a plan."""
    paths = _paths(problem, plan.models_run)
    run = {role: one for role, one in problem.models.by_role.items() if role in paths}
    return Job(
        table=table,
        plan=plan,
        paths=paths,
        loads=loads,
        devices=device_count(problem.device),
        dtype=problem.models.target.dtype,
        sampling=_sampling(problem.workload),
        weights={role: one.weight_format for role, one in run.items() if one.weight_format},
        caches={role: form for role, one in run.items() if (form := one.other_cache)},
        running=problem.serving.running,
        step_tokens=problem.serving.step_tokens,
        assumed=tuple(_assumed(table, problem)),
    )


def _paths(problem: Problem, roles: tuple[str, ...]) -> Mapping[str, str]:
    """Folder of each model; the target's own modules are in its folder."""
    models = problem.models.by_role
    return {
        role: str(models["target" if role.startswith(MODULE_PREFIX) else role].path)
        for role in ("target", *roles)
    }


def _assumed(table: Table, problem: Problem) -> Iterator[str]:
    """What prices assume of the server, and its settings do not state."""
    if table.device_words:
        yield f"{table.device_words}."
    prefill = server_as_stated(problem).prefill
    if prefill == "elsewhere":
        yield DECODES_ONLY
    elif problem.serving.prefill is not None and prefill != server_of(table.engine).prefill:
        yield (
            f"Predicted for a server that reads prompts {_PREFILLS[prefill]} (serving.prefill); "
            f"these files leave {table.title} at its own way."
        )


def _sampling(workload: Workload) -> dict[str, float]:
    """Settings of sampling by name; empty for greedy decoding."""
    if workload.greedy:
        return {}
    return {
        "temperature": workload.temperature,
        "top_k": workload.top_k,
        "top_p": workload.top_p,
    }
