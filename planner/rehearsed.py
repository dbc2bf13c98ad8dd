"""Methods whose drafts hang on what their earlier rounds left behind: what these share.

No place of a text tells what such a round accepts. Each setting is therefore a proposer of its own,
`target+way`, and its acceptance is that of its own rounds, run on the prompts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.proposer import Proposer, exit_layers, models_alone

OptionsT = TypeVar("OptionsT", bound=Options)


class Rehearsed(Method[OptionsT]):
    """A method with few settings, each measured by running it.

    Settings of one proposer differ in which of its drafts they use, not in what is accepted of
    these; the first of them is the one that runs.

    Attributes:
        family: name of its one family.
        domains: what its options mean.
        nobody: why it has no setting, where it has none.
        parts: whether parts of models may draft too: the target's first layers; the target without
            some blocks, or a model with few cached tokens, where the acceptance of that is known.
    """

    acceptance: ClassVar[str] = "its own rounds, run on the prompts with every setting"
    family: ClassVar[str]
    domains: ClassVar[Mapping[str, str]]
    nobody: ClassVar[str] = "models.drafts has no model that drafts by itself"
    parts: ClassVar[bool] = False

    @abstractmethod
    def settings(self, drafters: Sequence[str]) -> Iterator[OptionsT]:
        """All settings, simpler ones first.

        Args:
            drafters: roles of the draft models that run by themselves; where `parts` says so,
                parts of models too, `target@2`, `target-a1m1`, `target~512`.
        """

    def settings_of(self, facts: ProblemFacts, known: Iterable[str]) -> Iterator[OptionsT]:
        """All settings of a problem, those that other proposers tell of among them.

        Args:
            facts: the problem.
            known: proposers that are known, or that a plan is asked for.
        """
        return self.settings(self._drafters(facts.shapes, known))

    def proposers(self, shapes: Mapping[str, ModelShape]) -> tuple[str, ...]:
        """One for each setting."""
        return tuple(dict.fromkeys(map(self._name, self.settings(self._drafters(shapes)))))

    def further_proposers(self, facts: ProblemFacts) -> tuple[str, ...]:
        """One for each setting of a part whose acceptance is known by now."""
        return tuple(map(self._name, self.settings_of(facts, facts.profiles)))

    def rehearsal(self, facts: ProblemFacts, proposer: str) -> Plan | None:
        """The plan of the setting."""
        for options in self.settings_of(facts, [proposer]):
            if self.proposer(options) == proposer:
                return self.plan(facts, options)
        return None

    def choices(self, facts: ProblemFacts) -> Sequence[Family[OptionsT] | Refusal]:
        """The settings whose acceptance is known."""
        if not set(self.sources) <= set(facts.problem.sources):
            return [Refusal(self.family, f'the problem\'s sources leave out "{self.sources[0]}"')]
        if self.is_unasked(facts):
            reason = f'its settings are measured by running them: name "{self.name}" in methods'
            return [Refusal(self.family, reason)]
        every = tuple(self.settings_of(facts, facts.profiles))
        known = tuple(options for options in every if self.proposer(options) in facts.profiles)
        if not every:
            return [Refusal(self.family, self.nobody)]
        if not known:
            return [Refusal(self.family, facts.missing_profile(self._name(every[0])))]
        domains = {
            name: Domain(tuple(_sorted({getattr(options, name) for options in known})), words)
            for name, words in self.domains.items()
        }
        return [Family(self.family, domains, known)]

    def _name(self, options: OptionsT) -> str:
        return self.proposer(options) or ""

    def _drafters(self, shapes: Mapping[str, ModelShape], known: Iterable[str] = ()) -> list[str]:
        """Draft models that run without the target's hidden states, and parts of models.

        Args:
            shapes: by role.
            known: proposers of which some are parts of models, or draft with parts.
        """
        alone = models_alone(shapes)
        if not self.parts:
            return list(alone)
        exits = (Proposer("target", layers=layer).name for layer in exit_layers(shapes["target"]))
        drafters = (Proposer.read(name).drafter for name in known)
        others = {
            one.name: None
            for one in drafters
            if one.budget is not None or (one.skips and one.role == "target")
        }
        return [*alone, *exits, *others]


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Values of an option in rising order, none first."""
    return sorted(values, key=lambda value: (value is not None, value))
