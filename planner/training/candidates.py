"""Which drafters would pay once they are trained, by the plans and prices of `optimize`.

A drafter of a family and size is described by the config.json that its training would start from.
The methods of the problem draft with it as with any head, at the acceptance published for its kind
and at the least acceptance that pays (`specplan.planner.search.what_if`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.devices.device import UnpricedError
from specplan.cost_models.models.model_shape import ModelShape, is_gguf
from specplan.ir.errors import SpecplanError, UsageError
from specplan.planner.drafters.profiles import KINDS_WITH_PRIORS, prior_kind
from specplan.planner.facts import ProblemFacts
from specplan.planner.search.settings import priced, pricer_of, settings_by
from specplan.planner.search.what_if import MOST_ACCEPTANCE, NO_MEMORY, WhatIfRow, what_if
from specplan.planner.training.costs import training_seconds
from specplan.planner.training.described import with_untrained
from specplan.planner.training.families import FAMILIES, Family, HeadSize


@dataclass(frozen=True)
class UntrainedDrafter:
    """A drafter that would pay.

    Attributes:
        family: a name of `FAMILIES`.
        layers: its transformer layers.
        width: its hidden size.
        vocabulary: tokens that it drafts from.
        pays_from: the least acceptance of a draft token, given that those before it were accepted,
            from which it pays at some load; None where nobody looked for it.
        gain: speed over no speculation, the prompt included, at the published acceptance: geometric
            mean over the loads.
        low: of its 90 % interval, which is mostly that of the acceptance.
        high: likewise.
        train_seconds: of its training on this device; None where the device cannot say.
        published: published acceptance is of drafters of this size. Smaller ones accept less.
        draft_tokens: that its best plan verifies per step (K), at the first load.
        parameters: that are trained.
    """

    family: str
    layers: int
    width: int
    vocabulary: int
    pays_from: float | None
    gain: float
    low: float
    high: float
    train_seconds: float | None
    published: bool
    draft_tokens: int
    parameters: int

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LeftOut:
    """A family or a size of it that is no candidate.

    Attributes:
        family: its name.
        reason: why.
        layers: of the size; None for the whole family.
        width: likewise.
        vocabulary: likewise.
    """

    family: str
    reason: str
    layers: int | None = None
    width: int | None = None
    vocabulary: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Untrained:
    """Drafters that could be trained for a problem.

    Attributes:
        candidates: those that would pay, sizes with published acceptance first, then the fastest.
        left_out: the others, with reasons.
    """

    candidates: tuple[UntrainedDrafter, ...]
    left_out: tuple[LeftOut, ...]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "candidates": [one.as_dict() for one in self.candidates],
            "left_out": [one.as_dict() for one in self.left_out],
        }


def untrained_drafters(
    facts: ProblemFacts, families: Iterable[str] | None = None, *, brief: bool = False
) -> Untrained:
    """Which drafters would pay for a problem once they are trained.

    Args:
        facts: the problem and what is known of it; its own drafters are left out of the plans.
        families: names of `FAMILIES`; None for all that are estimated.
        brief: published sizes only, without `pays_from`.

    Raises:
        UsageError: there is no such family.
    """
    candidates: list[UntrainedDrafter] = []
    left_out: list[LeftOut] = []
    for family in _named(families):
        reason = _impossible(facts, family)
        if reason is not None:
            left_out.append(LeftOut(family.name, reason))
            continue
        sizes = [one for one in family.sizes(facts.target) if one.published or not brief]
        for size in sizes:
            one = _candidate(facts, family, size, brief=brief)
            if isinstance(one, UntrainedDrafter):
                candidates.append(one)
            else:
                left_out.append(one)
    candidates.sort(key=lambda one: (not one.published, -one.gain))
    return Untrained(tuple(candidates), tuple(left_out))


def _named(families: Iterable[str] | None) -> Iterator[Family]:
    estimated = [one.name for one in FAMILIES.values() if one.estimated]
    for name in estimated if families is None else families:
        if name not in FAMILIES:
            raise UsageError(
                f'no family of drafters is called "{name}"',
                where="--drafter",
                remedy=f"Known: {', '.join(FAMILIES)}.",
            )
        yield FAMILIES[name]


def _impossible(facts: ProblemFacts, family: Family) -> str | None:
    """Why no drafter of a family can be estimated for a target; None where one can."""
    if not family.estimated:
        return "no published figures say what is accepted of it: a pilot measures that"
    if family.config is None:
        if facts.modules:
            return "the target has modules of its own: name mtp in sources to draft with them"
        return None
    if is_gguf(facts.problem.models.target.path):
        return "its size is taken from the target's config.json, and the target is a GGUF file"
    return None


def _candidate(
    facts: ProblemFacts, family: Family, size: HeadSize, *, brief: bool
) -> UntrainedDrafter | LeftOut:
    try:
        drafting, shape, drafter = with_untrained(facts, family, size)
    except SpecplanError as error:
        return LeftOut(family.name, error.what, size.layers, None, size.vocabulary)
    sizes = size.layers, shape.hidden_size, size.vocabulary
    try:
        rows = what_if(drafting, [drafter], (None,), crossings=not brief)
    except UnpricedError as error:
        return LeftOut(family.name, error.what, *sizes)
    if not rows:
        return LeftOut(family.name, _unpriced(drafting, drafter), *sizes)
    reason = _useless(rows, brief=brief)
    if reason is not None:
        return LeftOut(family.name, reason, *sizes)
    from_where = [row.pays_from for row in rows if row.pays_from is not None]
    return UntrainedDrafter(
        family.name,
        *sizes,
        pays_from=min(from_where, default=None),
        gain=_mean([row.gain for row in rows]),
        low=_mean([row.gain_interval.low for row in rows]),
        high=_mean([row.gain_interval.high for row in rows]),
        train_seconds=_training(facts, shape, family),
        published=size.published,
        draft_tokens=rows[0].draft_tokens,
        parameters=shape.parameters,
    )


def _useless(rows: Sequence[WhatIfRow], *, brief: bool) -> str | None:
    """Why a drafter would not pay at any load; None where it would."""
    if all(row.words == NO_MEMORY for row in rows):
        return "it does not fit into the memory beside the target"
    if brief:
        gains = any(row.draft_tokens for row in rows)
        return None if gains else "it does not pay at the published acceptance"
    pays = any(row.pays_from is not None for row in rows)
    return None if pays else f"it pays at no acceptance up to {MOST_ACCEPTANCE:g}"


def _unpriced(facts: ProblemFacts, drafter: Drafter) -> str:
    """Why no plan with a drafter has a price, of the first one."""
    for setting in settings_by(facts, drafter):
        candidate = priced(facts, pricer_of(facts), setting)
        return candidate.refusal or candidate.unsupported or "it has no price here"
    return "no method drafts with it here"


def _training(facts: ProblemFacts, shape: ModelShape, family: Family) -> float | None:
    tokens = float(np.mean([one.prompt_tokens + one.output_tokens for one in facts.requests]))
    try:
        return training_seconds(facts.device, facts.target, shape, family.recipe, tokens)
    except UnpricedError:
        return None


def _mean(factors: Sequence[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(factors))))


def best_untrained(facts: ProblemFacts) -> UntrainedDrafter | None:
    """The best drafter of a published size whose kind the problem does not list yet."""
    with_priors = (name for name, one in facts.drafters.items() if one.kind in KINDS_WITH_PRIORS)
    listed = {prior_kind(Model(name), facts.drafters) for name in with_priors}
    every = (one.name for one in FAMILIES.values() if one.estimated)
    families = [name for name in every if name not in listed]
    candidates = untrained_drafters(facts, families, brief=True).candidates
    return candidates[0] if candidates else None
