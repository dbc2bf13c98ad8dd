"""Which acceptance profile a problem asks for, and whether one at hand is that one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import (
    TEXT,
    Beam,
    Drafter,
    Drawn,
    Fallback,
    FirstLayers,
    Interleaved,
    Model,
    OwnRounds,
    SkipBlocks,
    SmallCache,
    Source,
    model_of,
    source_of,
)
from specplan.cost_models.acceptance.fits.assumed import assume_length, assume_rate, assume_rates
from specplan.cost_models.acceptance.importers.registry import read_evidence
from specplan.cost_models.acceptance.priors.fit import prior_profile
from specplan.cost_models.acceptance.priors.tables import task_of
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile, How
from specplan.cost_models.models.drafter_shapes import DrafterShape
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import read_heads
from specplan.ir.errors import UsageError
from specplan.ir.files import name_of
from specplan.planner.drafters.parts import retrieves
from specplan.planner.problem.acceptance import (
    Acceptance,
    ConditionalRates,
    MarginalRates,
    MeanLength,
)
from specplan.planner.problem.schema import Problem

LOOKUP_MATCH = (1, 3)
"""Shortest and longest suffix, in tokens, that the text is looked up by beside other drafters."""
MEASURED_MATCH = (1, 8)
"""The same as prompt lookup is measured with; which matches are long enough is a choice."""
FALLBACK_MATCH = (3, 5)
"""The same where a model drafts without a match: it often drafts better than a short one does.

The fastest of seven in a replay of 66 continuations of the reference target by its EAGLE-1 head.
"""
CONTINUING = {TEXT.name} | {
    word for word, source in DRAFT_SOURCES.items() if source.evidence == "lengths"
}
"""Sources that give one continuation, with which a draft model may take turns."""


def acceptance_key(
    problem: Problem, shapes: Mapping[str, ModelShape], drafter: Drafter
) -> AcceptanceKey:
    """What a profile of `drafter` must be about to price plans of this problem.

    Args:
        problem: the problem.
        shapes: model shapes by role, `target` among them.
        drafter: who drafts.

    Returns:
        The key. At temperature 0 a draft model's children are its best ranks; above, they are
        drawn without replacement, which serves chains too: the first such draw is a plain one.
        Parts of a model are drawn from once: they draft chains, and a judged draw is quick to
        measure. Heads give their best ranks, as in engines, or are drawn from, which is another
        drafter (`Drawn`); beams give best ranks. Where a plan's own rounds tell, these are run.

    Raises:
        UsageError: no model of the problem has these first layers and more, or these blocks, or
            grows trees.
    """
    workload, source = problem.workload, source_of(drafter)
    _check(problem, drafter, shapes)
    match = None
    if source == TEXT.name:
        match = FALLBACK_MATCH if isinstance(drafter, Fallback) else LOOKUP_MATCH
        match = MEASURED_MATCH if drafter == TEXT else match
    elif source is not None:
        match = DRAFT_SOURCES[source].match
    return AcceptanceKey(
        drafter=drafter,
        target_digest=shapes["target"].digest,
        drafter_digest=_digest(drafter, shapes),
        task=workload.task,
        temperature=float(workload.temperature),
        top_k=workload.top_k,
        top_p=float(workload.top_p),
        how=_how(problem, drafter, shapes),
        match=match,
        grammar=workload.followed_digest,
    )


def _digest(drafter: Drafter, shapes: Mapping[str, ModelShape]) -> str:
    """Identity of the checkpoint that drafts; one for all where a plan runs several."""
    roles = drafter.models if isinstance(drafter, OwnRounds) else (model_of(drafter),)
    digests = [shapes[role].digest for role in roles if role is not None and role in shapes]
    return digests[0] if len(digests) == 1 else name_of(" ".join(digests)) if digests else ""


def _how(problem: Problem, drafter: Drafter, shapes: Mapping[str, ModelShape]) -> How:
    """How it draws the children of a node."""
    match drafter:
        case OwnRounds():
            return "run"
        case Source():
            return "given"
        case Beam():
            return "best"
        case Drawn():
            return "draw_distinct"
        case Model(name) | Fallback(_, name):
            shape = shapes.get(name)
            ranked = shape is None or shape.feature_width is not None
            if ranked or problem.workload.greedy:
                return "best"
            return "draw" if isinstance(drafter, Fallback) else "draw_distinct"
    return "best" if problem.workload.greedy else "draw"


def _check(problem: Problem, drafter: Drafter, shapes: Mapping[str, ModelShape]) -> None:
    """Refuse what no model of the problem can be."""
    alone = {
        draft.name
        for draft in problem.models.drafts
        if draft.name not in shapes or shapes[draft.name].feature_width is None
    }
    role = model_of(drafter)
    layers = 0 if role is None or role not in shapes else shapes[role].num_layers
    what, remedy = f'no model drafts as "{drafter}"', "the target or one that runs alone"
    match drafter:
        case FirstLayers():
            holds, what = drafter.layers < layers, f'no model has first layers "{drafter}"'
            remedy = "fewer layers than it has"
        case SkipBlocks():
            holds = drafter.skips.height <= layers
            what = f'no model has the blocks that "{drafter}" leaves out'
            remedy = "blocks of the layers that it has, from 0 on"
        case SmallCache(how="retrieved" | "observed"):
            holds = role == "target" and retrieves(shapes["target"])
            what = f'no tokens are chosen by head for "{drafter}"'
            remedy = "the target, where none of its layers has a window"
        case SmallCache(how="by_head"):
            per_layer = shapes["target"].kv_heads
            holds = role == "target" and all(
                layer < len(per_layer) and head < per_layer[layer]
                for layer, head in read_heads(drafter.heads)
            )
            what = f'no heads are told apart as "{drafter}"'
            remedy = "the target, and heads that have keys and values of their own"
        case SmallCache():
            holds = role in {"target", *alone}
        case OwnRounds():
            holds = all(model in shapes for model in drafter.models)
        case Beam():
            holds, what = role in alone, f'no draft model grows trees as "{drafter}"'
            remedy = "one that runs alone"
        case Drawn(name):
            heads = {draft.name for draft in problem.models.drafts} - alone
            holds = not problem.workload.greedy and name in {*heads, "mtp"}
            what = f'nobody draws as "{drafter}"'
            remedy = "a head, at a temperature above 0"
        case Interleaved():
            holds = role in alone and drafter.source in CONTINUING
            what = f'no draft model takes turns as "{drafter}"'
            remedy = f"one that runs alone, with {', '.join(sorted(CONTINUING))}"
        case Fallback():
            holds = drafter.source == TEXT.name and role in {d.name for d in problem.models.drafts}
            what, remedy = f'no model drafts as "{drafter}"', f"the source {TEXT.name}"
        case _:
            holds = True
    if not holds:
        raise UsageError(
            what,
            where=f"acceptance.{drafter}",
            remedy=f"Name a model of the problem, and {remedy}.",
        )


def stated_profile(
    stated: Acceptance, key: AcceptanceKey, drafters: Mapping[str, DrafterShape]
) -> AcceptanceProfile:
    """The profile of what a problem states: an assumption, a profile's file, or a log.

    Args:
        stated: a value of the problem's `acceptance`.
        key: what the profile must be about.
        drafters: the problem's drafters over hidden states by name, which tell kinds apart.

    Raises:
        UsageError: the file is broken, or of no known format; or there is no prior of the drafter.
    """
    match stated:
        case "prior":
            return prior_profile(prior_kind(key.drafter, drafters), task_of(key.task), key)
        case MeanLength():
            return assume_length(stated.length, stated.at, key)
        case ConditionalRates():
            return assume_rates(stated.conditional, key, marginal=False)
        case MarginalRates():
            return assume_rates(stated.marginal, key, marginal=True)
        case tuple():
            return assume_rates(stated, key, marginal=False)
        case Path():
            return read_evidence(stated, key)
    return assume_rate(stated, key)


KINDS_WITH_PRIORS = ("block", "parallel", "recurrent")
"""Of heads of which acceptance is published."""


def prior_kind(drafter: Drafter, drafters: Mapping[str, DrafterShape]) -> str:
    """The kind of drafter that a prior is for.

    Raises:
        UsageError: there are no published figures on what drafts so.
    """
    match drafter:
        case Model(name) if name in drafters:
            shape = drafters[name]
            if shape.kind in ("block", "parallel"):
                return "dflash" if shape.kind == "block" else "medusa"
            if shape.kind == "recurrent":
                return "eagle3" if len(shape.feature_layers) > 1 else "eagle"
        case Model("mtp"):
            return "mtp"
        case Model():
            return "draft_model"
        case Source(TEXT.name | "ngram" | "automaton"):
            return "ngram"
    raise UsageError(
        f'there is no prior for "{drafter}"',
        remedy="Measure it with `specplan profile acceptance`, or state a number such as 0.6.",
    )


def check_profiles(
    problem: Problem,
    shapes: Mapping[str, ModelShape],
    profiles: Mapping[Drafter, AcceptanceProfile],
) -> None:
    """Refuse profiles of other drafters, models, tasks or sampling settings.

    What a profile or the problem leaves open (digest, task, match, grammar) may be anything.

    Raises:
        UsageError: naming the first difference.
    """
    for drafter, profile in profiles.items():
        wanted = acceptance_key(problem, shapes, drafter)
        differences = _completed(profile.key, wanted).differences(wanted)
        if differences:
            raise UsageError(
                f"the acceptance profile was measured on something else ({differences[0]} here)",
                where=f"acceptance.{drafter}",
                remedy="Measure it for this problem with `specplan profile acceptance`.",
            )


def _completed(key: AcceptanceKey, wanted: AcceptanceKey) -> AcceptanceKey:
    """The key with what it leaves open, and what may differ, taken from the wanted one."""
    plain_draws = key.how == "draw" and wanted.how == "draw_distinct"
    return replace(
        key,
        target_digest=key.target_digest or wanted.target_digest,
        drafter_digest=key.drafter_digest or wanted.drafter_digest,
        task=key.task if key.task and wanted.task else wanted.task,
        how="draw_distinct" if plain_draws else key.how,
        match=wanted.match,
        grammar=key.grammar or wanted.grammar,
    )
