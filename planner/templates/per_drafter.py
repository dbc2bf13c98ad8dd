"""Families of settings by who drafts, priced by that drafter's profile."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, OptionsT, Refusal
from specplan.planner.reasons import Cause, Reason


class PerDraftModel(Method[OptionsT]):
    """A method with families of its own for each draft model."""

    def choices(self, facts: ProblemFacts) -> Sequence[Family[OptionsT] | Refusal]:
        """The families of every draft model."""
        reason = self.missing_source(facts)
        if not facts.drafts:
            reason = "models.drafts names no draft model"
        if reason is not None:
            return [Refusal("any", reason)]
        return [family for draft in facts.drafts for family in self.families(facts, draft)]

    @abstractmethod
    def families(self, facts: ProblemFacts, draft: str) -> Iterable[Family[OptionsT] | Refusal]:
        """The families of one draft model; those that cannot run, why."""


def family_by(
    facts: ProblemFacts,
    name: str,
    drafter: Drafter,
    settings: Callable[[AcceptanceProfile], Iterable[OptionsT]],
    at: Callable[[Mapping[str, Any]], OptionsT | None] | None = None,
    *,
    trees: bool = False,
) -> Family[OptionsT] | Refusal:
    """The family that a drafter's profile prices, or why there is none.

    Args:
        facts: the problem.
        name: of the family.
        drafter: who drafts.
        settings: gives the settings, from the profile.
        at: see `Family`.
        trees: its settings are trees, which need second choices.
    """
    profile = facts.profiles.get(drafter)
    if profile is None:
        return Refusal(name, facts.missing_profile(drafter))
    if trees and profile.key.how == "draw":
        reason = "the acceptance profile knows no second choices (it was measured with how=draw)"
        return Refusal(name, Reason(reason, Cause.FIRST_CHOICES))
    every = tuple(settings(profile))
    if trees and not every:
        return Refusal(name, facts.no_tree(drafter))
    return Family.of(name, every, at)
