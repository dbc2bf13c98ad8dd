"""Methods whose drafts hang on what their earlier rounds left behind: what these share.

No place of a text tells what such a round accepts. Each setting is therefore a proposer of its own,
`target+way`, and its acceptance is that of its own rounds, run on the prompts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.plan import MODULE_PREFIX, Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.proposer import Proposer, exit_layers

OptionsT = TypeVar("OptionsT", bound=Options)


class Rehearsed(Method[OptionsT]):
    """A method with few settings, each measured by running it.

    Attributes:
        family: name of its one family.
        domains: what its options mean.
        nobody: why it has no setting, where it has none.
        exits: whether the target's first layers may draft too.
    """

    acceptance: ClassVar[str] = "its own rounds, run on the prompts with every setting"
    family: ClassVar[str]
    domains: ClassVar[Mapping[str, str]]
    nobody: ClassVar[str] = "models.drafts has no model that drafts by itself"
    exits: ClassVar[bool] = False

    @abstractmethod
    def settings(self, roles: Sequence[str]) -> Iterator[OptionsT]:
        """All settings, simpler ones first.

        Args:
            roles: of the models that run by themselves, `target` first; where `exits` says so,
                the target's first layers too, `target@2`.
        """

    def proposers(self, shapes: Mapping[str, ModelShape]) -> tuple[str, ...]:
        """One for each setting."""
        roles = [
            role
            for role, shape in shapes.items()
            if not role.startswith(MODULE_PREFIX) and shape.feature_width is None
        ]
        return tuple(map(self._name, self.settings([*roles, *self._parts(shapes["target"])])))

    def rehearsal(self, facts: ProblemFacts, proposer: str) -> Plan | None:
        """The plan of the setting."""
        for options in self.settings(self._roles(facts)):
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
        every = tuple(self.settings(self._roles(facts)))
        known = tuple(options for options in every if self.proposer(options) in facts.profiles)
        if not every:
            return [Refusal(self.family, self.nobody)]
        if not known:
            return [Refusal(self.family, facts.missing_profile(self._name(every[0])))]
        domains = {
            name: Domain(tuple(sorted({getattr(options, name) for options in known})), words)
            for name, words in self.domains.items()
        }
        return [Family(self.family, domains, known)]

    def _name(self, options: OptionsT) -> str:
        return self.proposer(options) or ""

    def _roles(self, facts: ProblemFacts) -> list[str]:
        """The target, the draft models that run without its hidden states, parts of the target."""
        drafts = (name for name in facts.drafts if name not in facts.drafters)
        return ["target", *drafts, *self._parts(facts.target)]

    def _parts(self, target: ModelShape) -> list[str]:
        if not self.exits:
            return []
        return [Proposer("target", layers=layer).name for layer in exit_layers(target)]
