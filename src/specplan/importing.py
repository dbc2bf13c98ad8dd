"""What other programs measured: acceptance profiles, and what plans took on a device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.ir.plan import Plan
    from specplan.planner.measured.plans import MeasuredPlan
    from specplan.problems import ProblemLike


def import_acceptance(
    path: Path | str,
    drafter: str,
    *,
    format: str | None = None,
    task: str = "",
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    draft_tokens: int | None = None,
    rounds: float | None = None,
    select: str | None = None,
) -> AcceptanceProfile:
    """The acceptance profile that a log of another program holds; see docs/acceptance.md.

    Args:
        path: the log, or the `http` address of a running server's `/metrics`.
        drafter: who drafted, as problem files name it: a draft model, or "text" for prompt lookup.
        format: what wrote it; found by itself when None and clear.
        task: the word of the problem's workload.
        temperature: of the requests, and so `top_k` and `top_p`.
        top_k: 0 for off.
        top_p: 1 for off.
        draft_tokens: drafted tokens a round, where the log does not say.
        rounds: rounds behind its figures, where it does not say.
        select: a part of it: a label, a subset or a mode.

    Raises:
        UsageError: nothing drafts by that name; the file is broken, or its format is not clear.
    """
    from specplan.cost_models.acceptance.drafter_texts import read_drafter
    from specplan.cost_models.acceptance.drafters import Source
    from specplan.cost_models.acceptance.importers.base import ImportRequest
    from specplan.cost_models.acceptance.importers.registry import read_profile
    from specplan.cost_models.acceptance.profile import AcceptanceKey
    from specplan.ir.errors import UsageError

    try:
        who = read_drafter(drafter)
    except ValueError as error:
        what, _, remedy = str(error).partition("; ")
        raise UsageError(
            what, where="drafter", remedy=f"{remedy[:1].upper()}{remedy[1:]}."
        ) from error
    key = AcceptanceKey(
        who,
        task=task,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        how="given" if isinstance(who, Source) else "draw" if temperature > 0 else "best",
    )
    return read_profile(path, ImportRequest(key, draft_tokens, rounds, select), format)


def understood(profile: AcceptanceProfile) -> str:
    """What was read from a log, in a line: engine, draft tokens, positions and counts."""
    from specplan.cost_models.acceptance.evidence.hazards import Hazards

    facts, evidence = profile.provenance, profile.evidence
    depth = facts.get("draft_tokens")
    if isinstance(evidence, Hazards):
        depth = evidence.measured_depth or len(evidence.rows)
    parts = [f"{facts['engine']} ({facts['format']})" if "engine" in facts else facts["format"]]
    if facts.get("lines"):
        parts.append(f"{facts['lines']} lines")
    if isinstance(depth, int | float):
        chain = tuple(range(-1, int(depth) - 1)), (0,) * int(depth)
        tokens = profile.tokens_per_round(*chain)
        positions = f"rates at positions 1 to {int(depth)}"
        if not isinstance(evidence, Hazards):
            positions = f"a mean length at {int(depth)}"
        parts += [
            f"{int(depth)} draft tokens per step (K), {positions}",
            f"{tokens.words('.2f')} tokens per step",
        ]
    if facts.get("rounds"):
        assumed = ", assumed" if facts.get("rounds_assumed") else ""
        parts.append(f"{facts['rounds']:,.0f} steps{assumed}")
    if facts.get("accepted_tokens") and facts.get("draft_tokens_total"):
        taken, drafted = facts["accepted_tokens"], facts["draft_tokens_total"]
        parts.append(f"{taken:,.0f} of {drafted:,.0f} draft tokens accepted")
    return "; ".join(parts)


def import_device(
    files: Sequence[Path | str],
    problem: ProblemLike,
    *,
    projection: Path | str | None = None,
    batch: float | None = None,
    select: str | None = None,
) -> MeasuredPlan:
    """What an engine took on the problem's device, for every later search with this problem.

    The plan that the engine served gets the measured time; the prices of all others on that device
    are set right by it; see docs/devices.md.

    Args:
        files: the result of a serving benchmark, or scrapes of `/metrics` before and after a run.
        problem: with a named device.
        projection: the folder that `specplan emit` wrote for the engine; None for plain decoding.
        batch: requests that ran at once, where the files do not say.
        select: "label=value" where a server counts several models.

    Raises:
        UsageError: a file is broken or of no known format, the problem has no such load, or its
            device is this machine.
    """
    from specplan.cost_models.devices.engine_runs import read_served
    from specplan.planner.facts import gather_facts
    from specplan.planner.measured.served import plain_plan, remember_served, served_plan
    from specplan.problems import as_problem

    checked = as_problem(problem)
    if checked.device == "measured":
        raise UsageError(
            "figures of an engine set a named device right, and this one is the machine here",
            where="device",
            remedy="Name the device that the engine ran on.",
        )
    facts, run = gather_facts(checked), read_served(files, batch, select)
    served = plain_plan(facts) if projection is None else _emitted(Path(projection))
    measured = served_plan(facts, run, *served)
    remember_served(facts, measured, run)
    return measured


def _emitted(folder: Path) -> tuple[Plan, str, str]:
    """The plan of a projection, the method that wrote it and its setting in words."""
    from specplan.ir.files import read_json
    from specplan.ir.text.parser import parse_plan

    path = folder / "projection.json"
    document = read_json(path, "projection")
    try:
        emitted = document["emitted"]
        return parse_plan(emitted["plan"]), str(emitted["method"]), str(emitted["words"])
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"this is no projection (no {error})",
            where=str(path),
            remedy="Give the folder that `specplan emit` wrote.",
        ) from error
