"""Who drafts: what acceptance profiles, methods and problem files call it.

In files a drafter is written like an entry of the plan language: `draft`, `text`,
`first_layers(target, 4)`, `skip_blocks(target, [attn.3, mlp.4])`, `small_cache(target, 512,
retrieved)`, `beam(draft, 4)`, `drawn(head)`, `interleaved(draft, text)`, `fallback(text, draft)`. A
plan whose own rounds were run to see what is accepted is named by what it runs: `rounds(jacobi,
p0123456789abcdef)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.ir.blocks import Skips
from specplan.ir.files import name_of
from specplan.ir.plan import Assumptions, Plan
from specplan.ir.text.printer import print_plan
from specplan.ir.values import Atom, print_atom

Retained: TypeAlias = Literal["recent", "retrieved", "observed", "by_head"]
"""Which tokens of a text a small cache holds."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model or a head of the target.

    Attributes:
        name: as the problem calls it; `mtp` for the target's own modules.
    """

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Source:
    """The request's own text, or a source that plans declare.

    Attributes:
        name: `text`, or a word of `DRAFT_SOURCES`.
    """

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FirstLayers:
    """The first layers of a model, read by its own final norm and head.

    Attributes:
        model: its role in plans.
        layers: how many.
    """

    model: str
    layers: int

    def __str__(self) -> str:
        return f"first_layers({self.model}, {self.layers})"


@dataclass(frozen=True, slots=True)
class SkipBlocks:
    """A model without some of its blocks.

    Attributes:
        model: its role in plans.
        skips: the blocks.
    """

    model: str
    skips: Skips

    def __str__(self) -> str:
        return f"skip_blocks({self.model}, {print_atom(self.skips.words)})"


@dataclass(frozen=True, slots=True)
class SmallCache:
    """A model that reads few cached tokens of the text.

    Attributes:
        model: its role in plans.
        budget: tokens.
        how: `recent` for the first tokens and the latest; `retrieved` for the chunks that the
            latest query asks for; `observed` for what the last queries of the prompt attend to;
            `by_head` for the first and the latest of all heads but some.
        heads: those that read the whole text.
    """

    model: str
    budget: int
    how: Retained = "recent"
    heads: tuple[str, ...] = ()

    def __str__(self) -> str:
        more: list[Atom] = [] if self.how == "recent" else [self.how]
        more += [self.heads] if self.how == "by_head" else []
        return f"small_cache({', '.join([self.model, str(self.budget), *map(print_atom, more)])})"

    @property
    def words(self) -> str:
        """What it reads: `512 cached tokens`, or `512 retrieved tokens`."""
        if self.how == "by_head":
            return f"{self.budget} cached tokens, the whole text in {len(self.heads)} heads"
        return f"{self.budget} {'cached' if self.how == 'recent' else self.how} tokens"


@dataclass(frozen=True, slots=True)
class Beam:
    """A model that grows trees by a beam.

    Attributes:
        model: its name.
        width: children of every node that gets any, and nodes of a layer that do.
    """

    model: str
    width: int

    def __str__(self) -> str:
        return f"beam({self.model}, {self.width})"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A head whose tokens are drawn from its distribution, those of a node without replacement.

    Attributes:
        name: of the head; `mtp` for the target's own modules.
    """

    name: str

    def __str__(self) -> str:
        return f"drawn({self.name})"


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A model that takes turns with a source within a draft.

    Attributes:
        model: its name.
        source: `text`, or a word of `DRAFT_SOURCES`.
    """

    model: str
    source: str

    def __str__(self) -> str:
        return f"interleaved({self.model}, {self.source})"


@dataclass(frozen=True, slots=True)
class Fallback:
    """A source, and a model that drafts where the source has no match.

    Attributes:
        source: `text`, or a word of `DRAFT_SOURCES`.
        model: name of the model or head.
    """

    source: str
    model: str

    def __str__(self) -> str:
        return f"fallback({self.source}, {self.model})"


@dataclass(frozen=True, slots=True)
class OwnRounds:
    """A plan whose own rounds were run to see what is accepted.

    Attributes:
        plan: its name, for people.
        key: of what it runs; another constant in a plan is another key.
        models: that it runs beside the target.
    """

    plan: str
    key: str
    models: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan) -> OwnRounds:
        """The rounds of a plan."""
        models = tuple(model.name for model in plan.models if model.name != "target")
        return cls(plan.name, rounds_key(plan), models)

    def __str__(self) -> str:
        return f"rounds({', '.join((self.plan, self.key, *self.models))})"


Part: TypeAlias = FirstLayers | SkipBlocks | SmallCache
"""A model of which only a part, or on part of the text, drafts."""
Drafter: TypeAlias = Model | Source | Part | Beam | Drawn | Interleaved | Fallback | OwnRounds
TEXT = Source("text")
"""Prompt lookup."""
_SOURCES = frozenset({TEXT.name, *DRAFT_SOURCES})


def rounds_key(plan: Plan) -> str:
    """Names what the rounds of a plan run: states, ops, schedule, and models by their roles.

    What the plan is called, what it was priced for and whose weights it runs do not count.
    """
    models = tuple(replace(model, digest=None, dtype=None) for model in plan.models)
    bare = replace(plan, name="rounds", models=models, assumptions=Assumptions())
    return f"p{name_of(print_plan(bare))}"


def named_drafter(name: str) -> Model | Source:
    """The model or source that is called so."""
    return Source(name) if name in _SOURCES else Model(name)


def model_of(drafter: Drafter | None) -> str | None:
    """The one model that drafts, by its role; None where none does, or the rounds of a plan."""
    match drafter:
        case Model(who) | Drawn(who) | Fallback(_, who):
            return who
        case FirstLayers(who) | SkipBlocks(who) | SmallCache(who) | Beam(who) | Interleaved(who):
            return who
    return None


def source_of(drafter: Drafter) -> str | None:
    """The source that drafts, alone or with a model; None where none does."""
    match drafter:
        case Source(name) | Interleaved(_, name) | Fallback(name):
            return name
    return None
