"""What an engine can express, as data: its table, and the refusals that follow from it.

A table is `NAME.yaml` beside the engine's module:

    title: vLLM
    home: where its documentation is
    versions:
      "0.32":
        level: documentation      # or schema, parser, run: how far the files were verified
        verified_on: 2026-11-20   # when
        against: what was read or run
        drafters:                 # who may draft; see `structure.DRAFTERS`
          head: {shapes: [chain], schedule: [lengths, rise, stop]}
        why: {static tree: a reason that is added to refusals}

A version stands for all that begin with it: "0.32" for 0.32.1. With `like: ENGINE@VERSION` drafters
and reasons are those of that version of the other engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, get_args

from specplan.backends.engines.checkpoints import words_of
from specplan.backends.engines.structure import DRAFTERS, Drafting, Shape, Structure, read_structure
from specplan.ir.capabilities import Refusal
from specplan.ir.plan import Plan
from specplan.ir.text.yaml_text import read_data

Level: TypeAlias = Literal["documentation", "schema", "parser", "run"]
Schedules: TypeAlias = Literal["lengths", "rise", "stop"]

LEVELS: dict[Level, str] = {
    "documentation": "written from the documentation; nothing of it was run",
    "schema": "written from the engine's source and checked against a schema made from it; "
    "the engine itself was not run",
    "parser": "read by the engine's own parser",
    "run": "really run",
}
"""How far what is emitted was verified, in words."""


@dataclass(frozen=True)
class Ability:
    """What an engine does with one kind of drafter.

    Attributes:
        shapes: of the drafted tokens that it verifies.
        most_tokens: drafted tokens at most; None without a bound.
        largest_batch: requests that it drafts for together at most; None without a bound.
        schedule: what its draft length by batch size may do: `lengths`, have one for each range;
            `rise`, grow with the batch; `stop`, be 0. Empty where it has one length for all.
        whole_turns: drafted tokens are a multiple of the target's modules, or no more of them.
        within_beam: a tree verifies no more tokens than its levels times its widest branching.
        draws: at a temperature above 0 it can draw what it drafts, instead of taking best ranks.
        rules: acceptance rules that it has besides judging tokens one by one.
        ends: how it ends drafts early: by a `bar` on the last token's probability, or by `success`,
            two tokens more after a draft that was accepted whole, else one less.
        forms: checkpoints of the drafter that it loads (`checkpoints.FORMS`).
        forced: whether its switch that forces acceptance works with this drafter.
        differs: what it does otherwise than the plan says, in words: the price may differ, the
            output law does not.
    """

    shapes: tuple[Shape, ...] = ("chain",)
    most_tokens: int | None = None
    largest_batch: int | None = None
    schedule: tuple[Schedules, ...] = ()
    whole_turns: bool = False
    within_beam: bool = False
    draws: bool = False
    rules: tuple[str, ...] = ()
    ends: tuple[Literal["bar", "success"], ...] = ()
    forms: tuple[str, ...] = ()
    forced: bool = True
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """What one version of an engine can express.

    Attributes:
        engine: its name here.
        title: how its makers call it.
        home: where its documentation is.
        version: the version, or the beginning of all that the table is for.
        level: how far what is emitted was verified.
        verified_on: when that was.
        against: what was read or run.
        drafters: who may draft.
        why: reasons that are added to refusals, by drafter, shape, `schedule` or `devices`.
        dtypes: number types of the target that it takes.
        caches: its words for formats of KV caches that a setting chooses.
        quantizes: its words for formats that it rounds weights to as it loads them.
        shares: it can share every layer of a model among devices.
        named: devices that a problem names, of which it uses one where it does not share.
        runs_on: prefixes of the names of the devices that it runs on; empty for any.
        never_on: prefixes of those that it certainly does not run on.
        build: the first build, of an engine whose builds are numbered; later ones are taken too.
        asked: the version asked for where it is not this one, else "".
        forms: form of each drafter's checkpoint in a problem, by role.
        copied: drafters of a problem, by role, that not all of the target's devices share.
    """

    engine: str
    title: str
    home: str
    version: str
    level: Level
    verified_on: date
    against: str
    drafters: Mapping[str, Ability]
    why: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("auto", "bfloat16", "float16", "float32")
    caches: Mapping[str, str] = field(default_factory=dict)
    quantizes: Mapping[str, str] = field(default_factory=dict)
    shares: bool = True
    named: int = 1
    runs_on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()
    build: int | None = None
    asked: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)
    copied: frozenset[str] = frozenset()

    @property
    def device_words(self) -> str:
        """Which of the devices that a problem names it uses; "" for all of them."""
        if self.shares or self.named == 1:
            return ""
        return f"{self.title} runs a model on one device: 1 of the {self.named} is assumed"

    def may_run_on(self, device: str) -> bool:
        """Whether nothing rules out that it runs on a device of that name."""
        runs = not self.runs_on or device.startswith(self.runs_on)
        return runs and not device.startswith(self.never_on)

    def form(self, drafting: Drafting) -> str:
        """The form of the checkpoint that drafts; that of its structure where none is known."""
        role = drafting.models[0] if drafting.own_weights else ""
        return self.forms.get(role) or drafting.usual_form

    def refusals(self, plan: Plan) -> tuple[Refusal, ...]:
        """Everything in a verified plan that the engine cannot express; empty for nothing."""
        structure = read_structure(plan)
        refusals = [
            Refusal(self.engine, f"round {name}", reason)
            for name, drafting in structure.rounds.items()
            for reason in self._of_round(drafting, structure.largest_batch)
        ]
        if not refusals:
            refusals = [Refusal(self.engine, "schedule", r) for r in self._of_schedule(structure)]
        return tuple(refusals)

    def differs(self, plan: Plan) -> tuple[str, ...]:
        """What the engine does otherwise than a plan that it expresses says, in words."""
        drafting = read_structure(plan).longest
        ability = self.drafters[drafting.drafter]
        if drafting.drawn and not ability.draws:
            return (*ability.differs, "it drafts the best ranks, the plan draws")
        return ability.differs

    def forces(self, drafting: Drafting) -> bool:
        """Whether acceptance can be forced with this drafter."""
        return drafting.drafter != "none" and self.drafters[drafting.drafter].forced

    def _because(self, key: str) -> str:
        return f" ({self.why[key]})" if key in self.why else ""

    def _of_round(self, drafting: Drafting, batch: int) -> Iterator[str]:
        for unusual in drafting.unusual:
            yield f"it has no setting for {unusual}"
        drafter = drafting.drafter
        ability = self.drafters.get(drafter)
        if ability is None:
            yield f"it cannot draft with {DRAFTERS[drafter]}{self._because(drafter)}"
            return
        if drafter == "none":
            return
        if drafting.shape not in ability.shapes:
            shapes = " and ".join(f"{shape}s" for shape in ability.shapes)
            yield f"it verifies {shapes} of this drafter only{self._because(drafting.shape)}"
        if ability.most_tokens is not None and drafting.tokens > ability.most_tokens:
            yield f"it drafts {ability.most_tokens} tokens at most"
        if ability.largest_batch is not None and batch > ability.largest_batch:
            yield f"it drafts for batches of {ability.largest_batch} at most"
        if ability.within_beam and drafting.tokens > drafting.widest * drafting.depth:
            yield f"it verifies {drafting.widest} tokens for each level at most"
        if drafting.drawn and not ability.draws and drafter != "model":  # whose plans all draw
            yield "it drafts the best ranks, the plan draws"
        yield from self._of_acceptance(drafting, ability)
        if self.copied & {*drafting.models}:
            yield f"it shares a drafter among all of the target's devices{self._because('devices')}"
        modules = len(drafting.models)
        if ability.whole_turns and drafting.tokens % modules:
            yield f"it drafts a multiple of the target's {modules} modules"

    def _of_acceptance(self, drafting: Drafting, ability: Ability) -> Iterator[str]:
        """What it lacks of a round's rules and of the drafter's checkpoint."""
        if drafting.rule and drafting.rule not in ability.rules:
            yield f"it has no setting for acceptance by the rule {drafting.rule}"
        ends = "bar" if drafting.bar else "success" if drafting.first else ""
        if ends and ends not in ability.ends:
            yield "it has no setting for drafting that stops early by what was drafted"
        form = self.form(drafting)
        if ability.forms and form not in ability.forms:
            yield f"it does not load {words_of(form)}{self._because(form)}"

    def _of_schedule(self, structure: Structure) -> Iterator[str]:
        drafted = set(structure.rounds.values())
        if len(drafted) < 2:
            return
        if structure.axes != {"batch"}:
            others = " and ".join(sorted(structure.axes - {"batch"}))
            yield f"it chooses by batch size only, the plan by {others}"
            return
        drafting = [item for item in drafted if item.drafter != "none"]
        if len({(item.drafter, item.models, item.exit_layer) for item in drafting}) > 1:
            yield "it keeps one drafter for all batch sizes"
            return
        if any(item.shape != "chain" for item in drafting):
            yield "its draft length by batch size is for chains only"
            return
        may = self.drafters[drafting[0].drafter].schedule
        lengths = [tokens for _, _, tokens in structure.lengths]
        if "lengths" not in may:
            yield f"it has one draft length for all batch sizes{self._because('schedule')}"
        elif "rise" not in may and lengths != sorted(lengths, reverse=True):
            yield f"its draft length may not grow with the batch{self._because('rise')}"
        elif "stop" not in may and 0 in lengths:
            yield f"it cannot stop drafting at some batch sizes{self._because('stop')}"


@cache
def read_tables(engine: str) -> dict[str, Table]:
    """The tables of an engine by version, the newest first."""
    source = resources.files("specplan.backends.engines").joinpath(f"{engine}.yaml")
    data = read_data(source.read_text(encoding="utf-8"))
    shared = {"engine": engine, "title": data["title"], "home": data["home"]}
    return {version: _table(version, shared | given) for version, given in data["versions"].items()}


def _table(version: str, data: Mapping[str, Any]) -> Table:
    if "like" in data:
        engine, _, of = data["like"].partition("@")
        given = {key: item for key, item in data.items() if key != "like"}
        return replace(read_tables(engine)[of], **given, version=version)
    drafters = {}
    for drafter, given in data["drafters"].items():
        if drafter not in DRAFTERS:
            raise ValueError(f"{data['engine']}.yaml: no drafter is called {drafter}")
        drafters[drafter] = Ability(**_frozen(given))
    if data["level"] not in get_args(Level):
        raise ValueError(f"{data['engine']}.yaml: no level is called {data['level']}")
    return Table(**{**_frozen(data), "version": version, "drafters": drafters})


def _frozen(data: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples."""
    return {key: tuple(item) if isinstance(item, list) else item for key, item in data.items()}
