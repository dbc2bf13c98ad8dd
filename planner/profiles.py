"""Which acceptance profile a problem asks for, and whether one at hand is that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile, How
from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS
from specplan.ir.errors import UsageError
from specplan.planner.method import discover_methods
from specplan.planner.problem import TEXT_PROPOSER, Problem
from specplan.planner.who_drafts import read_beam, read_first_layers, read_without

LOOKUP_MATCH = (1, 3)
"""Shortest and longest suffix, in tokens, that prompt lookup is measured with."""


def acceptance_key(
    problem: Problem, shapes: Mapping[str, ModelShape], proposer: str
) -> AcceptanceKey:
    """What a profile of `proposer` must be about to price plans of this problem.

    Args:
        problem: the problem.
        shapes: model shapes by role, `target` among them.
        proposer: the name of a draft, what a source is called, first layers as "target@4", or a
            model without some blocks as "target-a3m4", or a beam of a draft model as "draft^4".

    Returns:
        The key. At temperature 0 a draft model's children are its best ranks; above, they are
        drawn without replacement, which serves chains too: the first such draw is a plain one.
        Parts of a model are drawn from once: they draft chains, and a judged draw is quick to
        measure. Drafters that read hidden states give their best ranks at every temperature, as in
        engines, and so do beams.

    Raises:
        UsageError: no model of the problem has these first layers and more, or these blocks, or
            grows trees.
    """
    workload = problem.workload
    of_source = {
        word: how
        for method in discover_methods().values()
        for word, how in method.source_proposers.items()
    }
    role, layers = read_first_layers(proposer) or (proposer, None)
    role, beam = read_beam(proposer) or (role, None)
    role, skips = read_without(proposer) or (role, NO_SKIPS)
    shape = shapes.get(role)
    if layers is not None and (shape is None or layers >= shape.num_layers):
        raise UsageError(
            f"no model has first layers {proposer!r}",
            where=f"acceptance.{proposer}",
            remedy="Name a model of the problem, and fewer layers than it has.",
        )
    if skips and (shape is None or skips.height > shape.num_layers):
        raise UsageError(
            f"no model has the blocks that {proposer!r} leaves out",
            where=f"acceptance.{proposer}",
            remedy="Name a model of the problem, and blocks of the layers that it has, from 0 on.",
        )
    reads_states = shape is not None and shape.feature_width is not None
    drafts = {draft.name for draft in problem.models.drafts}
    if beam is not None and (role not in drafts or reads_states):
        raise UsageError(
            f"no draft model grows trees as {proposer!r}",
            where=f"acceptance.{proposer}",
            remedy="Name a draft model of the problem that runs without the target.",
        )
    ranked = workload.greedy or reads_states or beam is not None
    how: How = "best" if ranked else "draw_distinct"
    part = layers is not None or bool(skips)
    how = "draw" if part and not workload.greedy else of_source.get(proposer, how)
    return AcceptanceKey(
        proposer=proposer,
        target_digest=shapes["target"].digest,
        proposer_digest="" if shape is None else shape.digest,
        task=workload.task,
        temperature=float(workload.temperature),
        top_k=workload.top_k,
        top_p=float(workload.top_p),
        how=how,
        match=LOOKUP_MATCH if proposer == TEXT_PROPOSER else None,
        layers=layers,
        beam=beam,
        skip=skips.words,
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
    )
