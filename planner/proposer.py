"""What drafts, by the names that profiles and plans' options bear."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from specplan.cost_models.shapes.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.plan import MODULE_PREFIX

SINKS = 16
"""First tokens that a cache with a budget keeps, as many as MagicDec keeps (arXiv 2408.11049)."""
CHUNK = 8
"""Tokens of a chunk that is retrieved, as many as TriForce's have (arXiv 2404.11912, its code)."""
EXITS = (1 / 16, 1 / 8, 1 / 4)
"""Parts of the stack after which a target drafts; those of LayerSkip (arXiv 2404.16710) are 1/8
(70B), 1/4 (7B) and 3/8 (13B)."""
_MODEL = r"[a-z][a-z0-9_]*"
_FIRST_LAYERS = re.compile(rf"({_MODEL})@([1-9][0-9]*)")
_BEAM = re.compile(rf"({_MODEL})\^([1-9][0-9]*)")
_BUDGET = re.compile(rf"({_MODEL})~([1-9][0-9]*)(r?)")
_WAY = re.compile(rf"({_MODEL})\+([a-z][a-z0-9_]*)")
_TURNS = re.compile(rf"({_MODEL})&({_MODEL})")
_PART = re.compile(r"(?:exit([1-9][0-9]*)|kept([1-9][0-9]*)(r?)|without_((?:[am][0-9]+)+))_")
_WITHOUT = re.compile(rf"({_MODEL})-(\w+)")


@dataclass(frozen=True, slots=True)
class Proposer:
    """A model, a source, a part of a model, or a model that drafts in a way of its own.

    Attributes:
        role: a model by its role in plans (`target`, the name of a draft), or what a source is
            called (`text`).
        layers: its first so many layers, read by its own final norm and head: `target@4`.
        beam: trees in which every node that gets children gets the best so many, and so many nodes
            of a layer do: `draft^4`.
        budget: it reads at most so many tokens of the text's cache: the first and the latest,
            `target~512`.
        retrieved: these are the chunks that the latest query asks for: `target~512r`.
        way: it drafts from what its rounds leave behind, in a way and setting of some method:
            `target+jacobi8`.
        source: it takes turns with what is called so, the text or another source: `draft&text`.
        skips: blocks it goes without: `target-a3m4`, the attention of layer 3 and the MLP of 4.
    """

    role: str
    layers: int | None = None
    beam: int | None = None
    budget: int | None = None
    retrieved: bool = False
    way: str = ""
    source: str | None = None
    skips: Skips = NO_SKIPS

    @classmethod
    def read(cls, name: str) -> Proposer:
        """The proposer of this name; what reads as no other kind is a role."""
        if found := _FIRST_LAYERS.fullmatch(name):
            return cls(found[1], layers=int(found[2]))
        if found := _BEAM.fullmatch(name):
            return cls(found[1], beam=int(found[2]))
        if found := _BUDGET.fullmatch(name):
            return cls(found[1], budget=int(found[2]), retrieved=bool(found[3]))
        if found := _WAY.fullmatch(name):
            return cls(found[1], way=found[2])
        if found := _TURNS.fullmatch(name):
            return cls(found[1], source=found[2])
        found = _WITHOUT.fullmatch(name)
        skips = Skips.read_short(found[2]) if found else None
        return cls(name) if not found or skips is None else cls(found[1], skips=skips)

    @property
    def name(self) -> str:
        """As profiles and problems name it."""
        if self.layers is not None:
            return f"{self.role}@{self.layers}"
        if self.beam is not None:
            return f"{self.role}^{self.beam}"
        if self.budget is not None:
            return f"{self.role}~{self._kept}"
        if self.way:
            return f"{self.role}+{self.way}"
        if self.source is not None:
            return f"{self.role}&{self.source}"
        return f"{self.role}-{self.skips.short}" if self.skips else self.role

    def in_way(self, way: str) -> Proposer:
        """Drafting in a way and setting of a method: `draft+bar90_8`, `target+exit2_bar90_6`.

        A part of a model is told by the way: its first layers, the blocks that it goes without
        (`target+without_a1m1_bar90_6`), or its budget (`target+kept512_bar90_6`, `kept512r`).
        """
        part = ""
        if self.layers is not None:
            part = f"exit{self.layers}_"
        elif self.budget is not None:
            part = f"kept{self._kept}_"
        elif self.skips:
            part = f"without_{self.skips.short}_"
        return Proposer(self.role, way=part + way)

    @property
    def drafter(self) -> Proposer:
        """Who drafts, where it does so in a way of its own (`in_way`): a model, or a part of it."""
        found = _PART.match(self.way)
        if not found:
            return Proposer(self.role) if self.way else self
        layers, budget, retrieved, skips = found.groups()
        if skips:
            return Proposer(self.role, skips=Skips.read_short(skips) or NO_SKIPS)
        if layers:
            return Proposer(self.role, layers=int(layers))
        return Proposer(self.role, budget=int(budget), retrieved=bool(retrieved))

    @property
    def _kept(self) -> str:
        return f"{self.budget}{'r' if self.retrieved else ''}"

    @property
    def words(self) -> str:
        """What it reads, where it has a budget: `512 cached tokens`, or `512 retrieved tokens`."""
        return f"{self.budget} {'retrieved' if self.retrieved else 'cached'} tokens"

    @property
    def is_part(self) -> bool:
        """Whether it is a model's first layers, or goes without blocks or most of the text."""
        return self.layers is not None or self.budget is not None or bool(self.skips)

    @property
    def is_derived(self) -> bool:
        """Whether it is a part of a model, or a model that drafts in a way of its own."""
        own_way = self.beam is not None or bool(self.way) or self.source is not None
        return self.is_part or own_way


def models_alone(shapes: Mapping[str, ModelShape]) -> tuple[str, ...]:
    """Roles of the draft models that read no hidden states of the target.

    Args:
        shapes: by role, `target` among them.
    """
    return tuple(
        role
        for role, shape in shapes.items()
        if role != "target" and not role.startswith(MODULE_PREFIX) and shape.feature_width is None
    )


def exit_layers(target: ModelShape) -> tuple[int, ...]:
    """The layers after which a target drafts, in rising order; none where it has one layer."""
    layers = {max(1, round(part * target.num_layers)) for part in EXITS}
    return tuple(sorted(layer for layer in layers if layer < target.num_layers))


def retrieves(target: ModelShape) -> bool:
    """Whether chunks of its cache can be retrieved: every layer reads the whole text."""
    kinds = target.kinds(0, target.num_layers).attentions
    return all(attention.reach is None for attention, _ in kinds)
