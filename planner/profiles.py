"""Which acceptance profile a problem asks for, and whether one at hand is that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile, How
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.errors import UsageError
from specplan.planner.draft_sources import DRAFT_SOURCES
from specplan.planner.method import discover_methods
from specplan.planner.problem import TEXT_PROPOSER, Problem
from specplan.planner.proposer import Proposer, retrieves

LOOKUP_MATCH = (1, 3)
"""Shortest and longest suffix, in tokens, that prompt lookup is measured with."""
CONTINUING = {TEXT_PROPOSER} | {
    word for word, source in DRAFT_SOURCES.items() if source.evidence == "lengths"
}
"""Sources that give one continuation, with which a draft model may take turns."""


def acceptance_key(
    problem: Problem, shapes: Mapping[str, ModelShape], proposer: str
) -> AcceptanceKey:
    """What a profile of `proposer` must be about to price plans of this problem.

    Args:
        problem: the problem.
        shapes: model shapes by role, `target` among them.
        proposer: its name (`Proposer.name`).

    Returns:
        The key. At temperature 0 a draft model's children are its best ranks; above, they are
        drawn without replacement, which serves chains too: the first such draw is a plain one.
        Parts of a model are drawn from once: they draft chains, and a judged draw is quick to
        measure. Drafters that read hidden states give their best ranks at every temperature, as in
        engines, and so do beams. Where a draft hangs on earlier rounds, the very rounds are run.

    Raises:
        UsageError: no model of the problem has these first layers and more, or these blocks, or
            grows trees.
    """
    workload, found = problem.workload, Proposer.read(proposer)
    shape = shapes.get(found.role)
    _check(problem, found, shape)
    return AcceptanceKey(
        proposer=proposer,
        target_digest=shapes["target"].digest,
        proposer_digest="" if shape is None else shape.digest,
        task=workload.task,
        temperature=float(workload.temperature),
        top_k=workload.top_k,
        top_p=float(workload.top_p),
        how=_how(problem, found, shape),
        match=_match(found.source or proposer),
        layers=found.layers,
        beam=found.beam,
        skip=found.skips.words,
        source=found.source,
    )


def _match(proposer: str) -> tuple[int, int] | None:
    """Suffixes that are looked up; None for models."""
    if proposer == TEXT_PROPOSER:
        return LOOKUP_MATCH
    return DRAFT_SOURCES[proposer].match if proposer in DRAFT_SOURCES else None


def _how(problem: Problem, proposer: Proposer, shape: ModelShape | None) -> How:
    """How it draws the children of a node."""
    if (proposer.is_part or proposer.source) and not problem.workload.greedy:
        return "draw"
    if proposer.way:
        return "run"
    for method in discover_methods().values():
        if proposer.name in method.source_proposers:
            return method.source_proposers[proposer.name]
    ranked = problem.workload.greedy or _reads_states(shape) or proposer.beam is not None
    return "best" if ranked else "draw_distinct"


def _reads_states(shape: ModelShape | None) -> bool:
    return shape is not None and shape.feature_width is not None


def _check(problem: Problem, proposer: Proposer, shape: ModelShape | None) -> None:
    """Refuse what no model of the problem can be."""
    name, layers = proposer.name, 0 if shape is None else shape.num_layers
    alone = {draft.name for draft in problem.models.drafts} if not _reads_states(shape) else set()
    if (proposer.layers or 0) >= max(layers, 1):
        what, remedy = f"no model has first layers {name!r}", "fewer layers than it has"
    elif proposer.drafter.skips.height > layers:
        what = f"no model has the blocks that {name!r} leaves out"
        remedy = "blocks of the layers that it has, from 0 on"
    elif (proposer.budget or proposer.way) and proposer.role not in {"target", *alone}:
        what, remedy = f"no model drafts as {name!r}", "the target or one that runs alone"
    elif proposer.drafter.retrieved and (
        proposer.role != "target" or shape is None or not retrieves(shape)
    ):
        what = f"no chunks are retrieved for {name!r}"
        remedy = "the target, where none of its layers has a window"
    elif proposer.beam is not None and proposer.role not in alone:
        what, remedy = f"no draft model grows trees as {name!r}", "one that runs alone"
    elif proposer.source is not None and (
        proposer.role not in alone or proposer.source not in CONTINUING
    ):
        what = f"no draft model takes turns as {name!r}"
        remedy = f"one that runs alone, with {', '.join(sorted(CONTINUING))}"
    else:
        return
    raise UsageError(
        what, where=f"acceptance.{name}", remedy=f"Name a model of the problem, and {remedy}."
    )


def check_profiles(
    problem: Problem,
    shapes: Mapping[str, ModelShape],
    profiles: Mapping[str, AcceptanceProfile],
) -> None:
    """Refuse profiles of other models, tasks or sampling settings.

    What a profile or the problem leaves open (digest, task, match) may be anything.

    Raises:
        UsageError: naming the first difference.
    """
    for proposer, profile in profiles.items():
        wanted = acceptance_key(problem, shapes, proposer)
        differences = _completed(profile.key, wanted).differences(wanted)
        if differences:
            raise UsageError(
                f"the acceptance profile was measured on something else ({differences[0]} here)",
                where=f"acceptance.{proposer}",
                remedy="Measure it for this problem with `specplan profile acceptance`.",
            )


def _completed(key: AcceptanceKey, wanted: AcceptanceKey) -> AcceptanceKey:
    """The key with what it leaves open, and what may differ, taken from the wanted one."""
    plain_draws = key.how == "draw" and wanted.how == "draw_distinct"
    return replace(
        key,
        target_digest=key.target_digest or wanted.target_digest,
        proposer_digest=key.proposer_digest or wanted.proposer_digest,
        task=key.task if key.task and wanted.task else wanted.task,
        how="draw_distinct" if plain_draws else key.how,
        match=wanted.match,
        layers=key.layers or wanted.layers,
        skip=key.skip or wanted.skip,
        source=key.source or wanted.source,
    )
