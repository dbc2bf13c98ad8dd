"""The base class of drafting methods, and how the planner finds them.

A method is one file in `planner/methods/` whose `METHOD` is an instance of `Method`, or an
entry point of the group `specplan.methods` in another package. It says which settings of its
options are legal for a problem, and writes the plan of a setting; the search prices the plan.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, get_args

from specplan.cost_models.acceptance.drafters import Drafter, Model, OwnRounds, Source
from specplan.ir.errors import UsageError
from specplan.ir.files import modules_of
from specplan.ir.plan import Plan
from specplan.ir.rules.pending import with_replays
from specplan.planner.facts import ProblemFacts
from specplan.planner.options import DraftName, Family, Option, Options, OptionsT, Refusal
from specplan.planner.reasons import Cause, Reason

__all__ = [
    "DraftName",
    "Family",
    "Method",
    "Option",
    "Options",
    "OptionsT",
    "Refusal",
    "discover_methods",
    "own_rounds",
]
ENTRY_POINT_GROUP = "specplan.methods"


class Method(ABC, Generic[OptionsT]):
    """One way of drafting, open to the world: nothing outside its file knows its name.

    Attributes:
        name: the word that stands in problem files; that of the file where the class says none.
        options: the class of its options.
        summary: one line for `specplan methods`.
        paper: where it was published, or who runs it; `papers` reads its arXiv ids.
        differs: what differs from the paper, in one sentence; empty where nothing does.
        acceptance: how it is measured what the target accepts of its drafts.
        memory: what it keeps besides models and their caches, and how much that is at most.
        engine_drafter: who drafts in its plans, in the words of the engines' tables
            (`specplan.backends.engines.structure`); empty where no engine has such a drafter.
        shape: the simplest that its drafts may have, in the same words.
        sources: sources that it drafts from (words of the problem's `sources`).
        source_drafter: what its source brings, as acceptance profiles call it: the one drafter
            whose profile prices all its plans.
        shares: whether its drafts depend on other requests, so that sampled outputs do too.
        law: which distribution the output follows, as plans promise it: the `target`'s own, the one
            that its plans state (`stated`: a mixture of models), or none (`free`).
        by_name: whether it is offered only where the problem's `methods` names it: its settings
            are measured by running them, or other methods have them too.
        runnable: whether a backend of this package runs what it writes.
    """

    name: ClassVar[str]
    options: ClassVar[type[Options]]
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    differs: ClassVar[str] = ""
    acceptance: ClassVar[str] = ""
    memory: ClassVar[str] = ""
    engine_drafter: ClassVar[str] = ""
    shape: ClassVar[str] = "chain"
    sources: ClassVar[tuple[str, ...]] = ()
    source_drafter: ClassVar[Model | Source | None] = None
    shares: ClassVar[bool] = False
    law: ClassVar[str] = "target"
    by_name: ClassVar[bool] = False
    runnable: ClassVar[bool] = True

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" not in vars(cls):
            cls.name = cls.__module__.rpartition(".")[2]
        for given in (one for base in cls.__orig_bases__ for one in get_args(base)):  # type: ignore[attr-defined]
            if isinstance(given, type) and issubclass(given, Options):
                cls.options = given

    @property
    def lossless(self) -> bool:
        """Whether the output follows the target's own distribution."""
        return self.law == "target"

    @property
    def papers(self) -> tuple[str, ...]:
        """The arXiv ids of its papers."""
        return tuple(re.findall(r"arXiv (\d{4}\.\d{5})", self.paper))

    @property
    def needs_draft_model(self) -> bool:
        """Whether it needs a model or drafter besides the target."""
        return any(option.drafts for option in self.options.declared().values())

    @property
    def status(self) -> tuple[str, ...]:
        """What becomes of its plans: all are priced and emitted, some are runnable."""
        return ("priced", "emitted", *(["runnable"] if self.runnable else []))

    def promise(self, facts: ProblemFacts) -> str:
        """What its plans promise of the output's law, as they write it."""
        return self.law

    def is_unasked(self, facts: ProblemFacts) -> bool:
        """Whether it is offered by name only, and the problem does not name it.

        A method that changes the output is offered where the problem limits what that may lose.
        """
        if not self.lossless and facts.problem.limits.quality is not None:
            return False
        return self.by_name and self.name not in (facts.problem.methods or ())

    def missing_source(self, facts: ProblemFacts) -> str | None:
        """Why it cannot draft from its sources; None where they and their profile are there."""
        if not set(self.sources) <= set(facts.problem.sources):
            words = f'the problem\'s sources leave out "{self.sources[0]}"'
            return Reason(words, Cause.SOURCE)
        if self.source_drafter is None or self.source_drafter in facts.profiles:
            return None
        return facts.missing_profile(self.source_drafter)

    @abstractmethod
    def choices(self, facts: ProblemFacts) -> Sequence[Family[OptionsT] | Refusal]:
        """Every legal choice for a problem, by families; a family that cannot run, why."""

    @abstractmethod
    def plan(self, facts: ProblemFacts, options: OptionsT) -> Plan:
        """The plan of one setting out of `choices`."""

    def written(self, facts: ProblemFacts, options: OptionsT) -> Plan:
        """The plan of one setting; caches of recurrent models say how these go back."""
        recurrent = [name for name, shape in facts.shapes.items() if shape.state_elements]
        plan = self.plan(facts, options).with_snapshots(recurrent)
        return with_replays(plan) if facts.replays else plan

    def drafter(self, facts: ProblemFacts, options: OptionsT) -> Drafter | None:
        """Whose acceptance profile prices the plan; None when nothing is drafted.

        Where a method does not say, what its source brings, else the plan's own rounds: these are
        run on the prompts, and their profile holds for this plan alone, to the last constant.
        """
        return self.source_drafter or own_rounds(facts, self, options)

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """What it makes of the problem's models, whose acceptance is measured.

        Besides what the problem names, and besides rounds that are run (`run_settings`).
        """
        return ()

    def run_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """Settings whose own rounds are run, as far as the models alone say which."""
        return iter(())

    def later_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """The same, with those that only the device and profiles of other drafters say.

        Before these are known: the settings that a device is to be measured for.
        """
        return iter(())


def own_rounds(facts: ProblemFacts, method: Method[OptionsT], options: OptionsT) -> OwnRounds:
    """The rounds of the plan that a method writes for a setting; remembered with the facts."""
    about = (id(facts.problem), facts.target.digest, method.name, options)
    if about not in facts.own_rounds:
        facts.own_rounds[about] = facts.problem, OwnRounds.of(method.written(facts, options))
    return facts.own_rounds[about][1]


@cache
def discover_methods() -> dict[str, Method[Any]]:
    """All methods by name: those of this package, then those of other packages.

    Raises:
        UsageError: when an entry point is broken or two methods bear one name.
    """
    from specplan.planner import methods as folder

    methods: dict[str, Method[Any]] = {}
    for name, module in modules_of(folder.__name__, folder.__path__).items():
        _add(methods, module.METHOD, f"planner/methods/{name}.py")
    for point in entry_points(group=ENTRY_POINT_GROUP):
        place = f'entry point "{point.name}" of {point.value}'
        try:
            method = point.load()
        except Exception as error:
            raise UsageError(
                f"the method cannot be loaded ({error})",
                where=place,
                remedy="Mend or uninstall the package that brings it.",
            ) from error
        _add(methods, method, place)
    return methods


def _add(methods: dict[str, Method[Any]], method: object, place: str) -> None:
    if not isinstance(method, Method):
        raise UsageError(
            "this is not a Method",
            where=place,
            remedy="Let it name an instance of a subclass of specplan.planner.method.Method.",
        )
    if method.name in methods:
        raise UsageError(
            f'a method is already called "{method.name}"',
            where=place,
            remedy="Rename one of the two.",
        )
    methods[method.name] = method
