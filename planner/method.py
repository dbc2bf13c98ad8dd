"""What a drafting method is to the planner, and how methods are found.

A method is one file in `planner/methods/` whose `METHOD` is an instance of `Method`, or an
entry point of the group `specplan.methods` in another package. It says which settings of its
options are legal for a problem, and writes the plan of a setting; the search prices the plan.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Generic, TypeVar

from specplan.cost_models.acceptance.drafters import Drafter, Model, OwnRounds, Source
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts

ENTRY_POINT_GROUP = "specplan.methods"


@dataclass(frozen=True)
class Options:
    """One setting of a method's options; a method adds its own fields."""

    @property
    def words(self) -> str:
        """The setting in a few words, for tables."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in given)

    def as_dict(self) -> dict[str, Any]:
        """The options by name, ready for JSON; drafters as files name them."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: str(x) if isinstance(x, Drafter) else x for name, x in given}


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True)
class Domain:
    """What values an option may take.

    Attributes:
        values: every value tried, in order.
        description: what the option is, with its unit.
        whole: whether every whole number from the first value to the last one may be taken, though
            not all of them are tried.
    """

    values: tuple[Any, ...]
    description: str
    whole: bool = False


@dataclass(frozen=True)
class Family(Generic[OptionsT]):
    """Settings of a method that stand or fall together.

    Attributes:
        name: short name, unique within the method.
        domains: the options that vary, with what they range over.
        settings: the legal settings within the domains, simpler ones first.
        at: the setting at a point of the domains, given by their names, where `settings` are only
            some of those there are; it gives None where there is none. None where all are tried.
    """

    name: str
    domains: Mapping[str, Domain]
    settings: tuple[OptionsT, ...]
    at: Callable[[Mapping[str, Any]], OptionsT | None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Refusal:
    """A family that cannot be used for this problem.

    Attributes:
        name: name of the family.
        reason: why, and what would change it.
    """

    name: str
    reason: str


class Method(ABC, Generic[OptionsT]):
    """One way of drafting, open to the world: nothing outside its file knows its name.

    Attributes:
        name: the word that stands in problem files.
        engine_drafter: who drafts in its plans, in the words of the engines' tables
            (`specplan.backends.engines.structure`); empty where no engine has such a drafter.
        shape: the simplest that its drafts may have, in the same words.
        summary: one line for `specplan methods`.
        paper: where it was published, or who runs it.
        acceptance: how it is measured what the target accepts of its drafts.
        memory: what it keeps beside models and their caches, and how much that is at most.
        lossless: whether the output law is the target's own.
        sources: sources that it drafts from (words of the problem's `sources`).
        source_drafters: what its sources bring, as acceptance profiles call it.
        needs_draft_model: whether it needs a model or drafter beside the target.
        leaves_blocks_out: whether the target drafts without some of its blocks; which ones these
            are is searched for where models run.
        by_name: whether its settings are measured, and those offered that only rounds tell of or
            that other methods have too, only where the problem's `methods` names it.
        priced: whether its plans have a price, given an acceptance profile.
        emitted: whether it writes plans in the ops of the language.
        runnable: whether a backend of this package runs what it writes.
    """

    name: ClassVar[str]
    engine_drafter: ClassVar[str] = ""
    shape: ClassVar[str] = "chain"
    summary: ClassVar[str]
    paper: ClassVar[str] = ""
    acceptance: ClassVar[str] = ""
    memory: ClassVar[str] = ""
    lossless: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = ()
    source_drafters: ClassVar[tuple[Model | Source, ...]] = ()
    needs_draft_model: ClassVar[bool] = False
    leaves_blocks_out: ClassVar[bool] = False
    by_name: ClassVar[bool] = False
    priced: ClassVar[bool] = True
    emitted: ClassVar[bool] = True
    runnable: ClassVar[bool] = True

    @property
    def status(self) -> tuple[str, ...]:
        """Those of `priced`, `emitted` and `runnable` that hold."""
        words = {"priced": self.priced, "emitted": self.emitted, "runnable": self.runnable}
        return tuple(word for word, holds in words.items() if holds)

    def is_unasked(self, facts: ProblemFacts) -> bool:
        """Whether it is offered by name only, and the problem does not name it."""
        return self.by_name and self.name not in (facts.problem.methods or ())

    @abstractmethod
    def choices(self, facts: ProblemFacts) -> Sequence[Family[OptionsT] | Refusal]:
        """Every legal choice for a problem, by families; a family that cannot run, why."""

    @abstractmethod
    def plan(self, facts: ProblemFacts, options: OptionsT) -> Plan:
        """The plan of one setting out of `choices`."""

    def drafter(self, facts: ProblemFacts, options: OptionsT) -> Drafter | None:
        """Whose acceptance profile prices the plan; None when nothing is drafted.

        Where a method does not say, the plan's own rounds: they are run on the prompts, and what
        is known of them holds for this plan alone, to the last constant.
        """
        return own_rounds(facts, self, options)

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """What it makes of the problem's models, whose acceptance is measured.

        Beside what the problem names, and beside rounds that are run (`run_settings`).
        """
        return ()

    def run_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """Settings whose own rounds are run, as far as models alone tell of them."""
        return iter(())

    def later_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """Those that only the device and the profiles of other drafters tell of, and the others.

        Where these are not known yet: the ones that a device is to be measured for.
        """
        return iter(())


def own_rounds(facts: ProblemFacts, method: Method[OptionsT], options: OptionsT) -> OwnRounds:
    """The rounds of the plan that a method writes for a setting; remembered with the facts."""
    about = (id(facts.problem), facts.target.digest, method.name, options)
    if about not in facts.own_rounds:
        facts.own_rounds[about] = facts.problem, OwnRounds.of(method.plan(facts, options))
    return facts.own_rounds[about][1]


@cache
def discover_methods() -> dict[str, Method[Any]]:
    """All methods by name: those of this package, then those of other packages.

    Raises:
        UsageError: when an entry point is broken or two methods bear one name.
    """
    from specplan.planner import methods as folder

    found: dict[str, Method[Any]] = {}
    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda module: module.name):
        loaded = importlib.import_module(f"{folder.__name__}.{module.name}")
        _add(found, loaded.METHOD, f"planner/methods/{module.name}.py")
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
        _add(found, method, place)
    return found


def _add(found: dict[str, Method[Any]], method: object, place: str) -> None:
    if not isinstance(method, Method):
        raise UsageError(
            "this is not a Method",
            where=place,
            remedy="Let it name an instance of a subclass of specplan.planner.method.Method.",
        )
    if method.name in found:
        raise UsageError(
            f'a method is already called "{method.name}"',
            where=place,
            remedy="Rename one of the two.",
        )
    found[method.name] = method
