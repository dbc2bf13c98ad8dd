"""Methods of few settings whose own rounds are run on the prompts.

No place of a text says what rounds accept that depend on earlier ones. Each setting is therefore
known by the plan that it writes (`OwnRounds`), and its acceptance is that of those rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import product
from typing import Any, ClassVar, cast

from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, OptionsT, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.search.limits import unsupported


class ProfiledByRunning(Method[OptionsT]):
    """A method with few settings, each measured by running it.

    Attributes:
        family: name of its one family.
        shapes: the options that are tried, without the draft model; by default every combination
            of the values that the options declare.
    """

    by_name = True
    acceptance = "its own rounds, run on the prompts with every setting"
    family: ClassVar[str]
    shapes: ClassVar[Sequence[tuple[Any, ...]]] = ()

    def settings(self, models: Sequence[str]) -> Iterator[OptionsT]:
        """All settings, simpler ones first; with each draft model where the method needs one.

        Args:
            models: roles of the draft models that run by themselves.
        """
        declared = self.options.declared()
        values = (declared[one.name].values for one in fields(self.options))
        shapes = self.shapes or tuple(product(*(one for one in values if one)))
        for model in models if self.needs_draft_model else [None]:
            for shape in shapes:
                yield self.setting(*shape) if model is None else self.setting(model, *shape)

    def setting(self, *values: Any) -> OptionsT:
        """A setting, from the values of its options in their order."""
        return cast(OptionsT, self.options(*values))

    def run_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """All settings of a problem's models."""
        if self.unavailable(facts) is None:
            yield from self.settings(models_alone(facts.shapes))

    def later_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """Here the same."""
        return self.run_settings(facts)

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Why a problem's models leave no setting; None where there may be some."""
        return None

    def choices(self, facts: ProblemFacts) -> Sequence[Family[OptionsT] | Refusal]:
        """The settings whose acceptance is known."""
        reason = self.missing_source(facts)
        if reason is None and self.is_unasked(facts):
            words = f'its settings are measured by running them: name "{self.name}" in methods'
            reason = Reason(words, Cause.OPT_IN)
        if reason is not None:
            return [Refusal(self.family, reason)]
        every = tuple(self.later_settings(facts))
        if not every:
            reason = self.unavailable(facts) or "models.drafts has no model that drafts by itself"
            return [Refusal(self.family, reason)]
        known = tuple(one for one in every if self.drafter(facts, one) in facts.profiles)
        if not known:
            return [Refusal(self.family, self._unmeasured(facts, every[0]))]
        return [Family.of(self.family, known)]

    def _unmeasured(self, facts: ProblemFacts, options: OptionsT) -> str:
        """Why a setting has no profile: the backend does not run it, or nobody has measured it."""
        drafter = self.drafter(facts, options)
        missing = "" if drafter is None else facts.missing_profile(drafter)
        cannot = unsupported(facts, self.plan(facts, options))
        return missing if cannot is None else Reason(cannot, Cause.BACKEND)
