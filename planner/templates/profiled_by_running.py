"""Methods of few settings whose own rounds are run on the prompts: what these share.

No place of a text tells what rounds accept that depend on earlier ones. Each setting is therefore
known by the plan that it writes (`OwnRounds`), and its acceptance is that of those rounds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import models_alone
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.search.limits import unsupported

OptionsT = TypeVar("OptionsT", bound=Options)


class ProfiledByRunning(Method[OptionsT]):
    """A method with few settings, each measured by running it.

    Attributes:
        family: name of its one family.
        domains: what its options mean.
    """

    acceptance: ClassVar[str] = "its own rounds, run on the prompts with every setting"
    family: ClassVar[str]
    domains: ClassVar[Mapping[str, str]]

    @abstractmethod
    def settings(self, models: Sequence[str]) -> Iterator[OptionsT]:
        """All settings, simpler ones first.

        Args:
            models: roles of the draft models that run by themselves.
        """

    @abstractmethod
    def plan(self, facts: ProblemFacts, options: OptionsT) -> Plan:
        """See `Method.plan`; no profile changes it."""

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
        if not set(self.sources) <= set(facts.problem.sources):
            return [Refusal(self.family, f'the problem\'s sources leave out "{self.sources[0]}"')]
        if self.is_unasked(facts):
            reason = f'its settings are measured by running them: name "{self.name}" in methods'
            return [Refusal(self.family, reason)]
        every = tuple(self.later_settings(facts))
        if not every:
            reason = self.unavailable(facts) or "models.drafts has no model that drafts by itself"
            return [Refusal(self.family, reason)]
        known = tuple(one for one in every if self.drafter(facts, one) in facts.profiles)
        if not known:
            return [Refusal(self.family, self._unmeasured(facts, every[0]))]
        domains = {
            name: Domain(tuple(_sorted({getattr(options, name) for options in known})), words)
            for name, words in self.domains.items()
        }
        return [Family(self.family, domains, known)]

    def _unmeasured(self, facts: ProblemFacts, options: OptionsT) -> str:
        """Why a setting has no profile: the backend does not run it, or nobody has measured it."""
        drafter = self.drafter(facts, options)
        missing = "" if drafter is None else facts.missing_profile(drafter)
        return unsupported(facts, self.plan(facts, options)) or missing


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Values of an option in rising order, none first; drafters by their names."""

    def order(value: Any) -> tuple[bool, Any]:
        plain = value is None or isinstance(value, int | float | str | tuple)
        return value is not None, value if plain else str(value)

    return sorted(values, key=order)
