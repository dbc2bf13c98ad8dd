"""What a pass needs of a model: its layers one at a time, over whatever they may attend to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.meaning import Path
from specplan.ir.values import Entry
from specplan.runtime.models.attention import additive_mask, always
from specplan.runtime.models.cache_parts.observed import Voting, Window, most_voted, no_votes
from specplan.runtime.models.cache_parts.retrieval import best_chunks
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request

SLOT = -1
"""Stands in paths for a token that nobody knows."""


@dataclass(frozen=True)
class Context:
    """What one layer sees.

    Attributes:
        paths: of the tokens that may be attended to, the running ones among them.
        states: what entered the layer there, `[U, width]`.
        mask: bool `[H, T, U]`: which of them each running token attends to, by key/value head; H is
            1 where all heads see the same.
        source: states of another model's cache, or from outside, that are attended to as well,
            `[S, width]`; None for none.
        source_mask: bool `[T, S]`.
    """

    paths: Sequence[Path]
    states: Tensor
    mask: Tensor
    source: Tensor | None = None
    source_mask: Tensor | None = None


class Stack:
    """A model, or a drafting head, as the oracle runs it: path by path and layer by layer.

    Attributes:
        num_layers: of its stack; 0 for a head without any.
        vocab_size: entries of its logits.
        by_slots: it looks ahead by slots that run through its layers below a node; else by heads.
        slots_enter: the layer at which slots enter.
        optional_features: it runs where a feature is missing, too.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.num_layers, self.vocab_size = module.num_layers, module.vocab_size
        self.by_slots, self.slots_enter = module.by_slots, module.slots_enter
        self.optional_features = module.optional_features
        self.slots_first = module.slots_first

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values in each layer."""
        if not isinstance(self.module, CausalModel):
            raise self._lacks("heads that each see a part of the text")
        return self.module.family.kv_heads

    def enter(
        self, features: Mapping[Path, Tensor | None], steps: Mapping[Path, int]
    ) -> dict[Path, Tensor]:
        """The states `[width]` that enter the first layer at paths.

        Args:
            features: by path, of which the last token runs: what a track holds `shift` nodes above
                it, None where there is none.
            steps: how many steps of this model each feature is from the target's own.
        """
        bare = [path for path, feature in features.items() if feature is None]
        given = {path: feature for path, feature in features.items() if feature is not None}
        entered: dict[Path, Tensor] = {}
        for paths, above in ((bare, None), ([*given], [*given.values()])):
            if paths:
                states = self._enter(paths, above, [steps[path] for path in paths])
                entered |= dict(zip(paths, states, strict=True))
        return entered

    def _enter(
        self, paths: Sequence[Path], features: Sequence[Tensor] | None, steps: Sequence[int]
    ) -> Tensor:
        """What enters, `[n, width]`, where all paths have a feature or none has."""
        count, taken = self.module.tokens_read, torch.tensor([[*steps]])
        last = [((path[0],) * (count - 1) + path)[-count:] for path in paths]
        tokens = torch.tensor([last if count > 1 else [path[-1] for path in paths]])
        positions, joined, known = _positions(paths), None, None
        if features is not None:
            joined, known = torch.stack([*features])[None], torch.ones_like(taken, dtype=torch.bool)
        entered = self.module.enter(tokens, positions, joined, known, taken)
        if entered is None:
            size = len(paths)
            cache, mask = self.module.new_cache(1, size), torch.eye(size, dtype=torch.bool)[None]
            slots = torch.arange(size)[None]
            entered = self.module.hidden(tokens, positions, slots, mask, cache, (0, 0))
        return entered[0]

    def enter_slot(self, state: Tensor, level: int) -> Tensor:
        """The state `[width]` that enters for a slot, `level` below a node whose state is there."""
        return self.module.enter_slots(state[None, None], level)[0, 0]

    def layer(
        self, number: int, paths: Sequence[Path], context: Context, skips: Skips = NO_SKIPS
    ) -> Tensor:
        """States `[T, width]` of the running paths after a layer.

        Keys and values of the whole context are made anew.
        """
        if context.source is not None:
            raise self._lacks("other caches to read")
        column = {path: place for place, path in enumerate(context.paths)}
        rows, size = torch.tensor([column[path] for path in paths]), len(context.paths)
        mask = torch.eye(size, dtype=torch.bool).repeat(len(context.mask), 1, 1)
        mask[:, rows] = context.mask
        cache = self.module.new_cache(1, size)
        return self._run(number, context.paths, context.states, cache, mask, skips)[rows]

    def _run(
        self,
        number: int,
        paths: Sequence[Path],
        states: Tensor,
        cache: KVCache,
        mask: Tensor,
        skips: Skips = NO_SKIPS,
        asks: int = 0,
    ) -> Tensor:
        """One layer on paths that attend to each other: `[n, width]` to the same."""
        positions, slots = _positions(paths), torch.arange(len(paths))[None]
        model, span, given = self.module, (number, number + 1), states[None].clone()
        ahead = sum(path[-1] == SLOT for path in paths)  # they stand behind what they see
        if len(mask) == 1:
            latest = torch.tensor([asks])
            return model.hidden(
                torch.zeros_like(slots), positions, slots, mask, cache, span, given, skips, latest,
                ahead,
            )[0]  # fmt: skip
        if not isinstance(model, CausalModel):
            raise self._lacks("heads that each see a part of the text")
        family = model.family

        def masks(window: int | None) -> Tensor:
            near = positions[0, :, None] - positions[0] < (window or 1 << 62)
            groups = family.heads // family.kv_heads
            return additive_mask(mask & near, groups, model.dtype).transpose(0, 1)

        writer = cache.writer(positions, slots, len(paths))
        writer.additions = model.additions(ahead)
        return family.run(given, positions, masks, writer, span, skips)[0]

    def logits(self, state: Tensor, path: Path, output: str, step: int) -> Tensor:
        """What the model says after a state: logits `[V]`, or another output by its name."""
        return self.module.rows(state[None, None], output, torch.tensor([[step]]))[0, 0]

    def level_logits(self, state: Tensor, path: Path, levels: int, step: int) -> Sequence[Tensor]:
        """Logits `[V]` of each level, by heads on the state of a node."""
        states, steps = state[None, None], torch.tensor([[step]])
        return [self.module.rows(states, "logits", steps, level)[0, 0] for level in range(levels)]

    def reads_layer(self, number: int) -> int:
        """The layer of another model's cache that a layer attends to."""
        raise self._lacks("other caches to read")

    def outside(self, request: Request) -> Tensor:
        """What the model's encoder makes of a request, `[S, width]`."""
        return self.module.outside("encoder", [request])

    def retrieved(
        self, number: int, states: Tensor, paths: Sequence[Path], asks: int, budget: int, chunk: int
    ) -> list[list[int]]:
        """Places in a text that each key/value head of a layer asks for, rising.

        They are those of the chunks whose mean key agrees best with the query.

        Args:
            number: the layer.
            states: what entered the layer, `[n, width]`.
            paths: prefixes of the text, the shortest first.
            asks: the place of the token whose query asks.
            budget: most tokens.
            chunk: consecutive tokens that are taken together.
        """
        size = len(paths)
        cache = self.module.new_cache(1, size, queries=True)
        assert cache.queries is not None
        keys = cache.keys[number]
        if size <= budget:
            return [[*range(size)]] * keys.shape[1]
        mask = torch.ones(1, size, size, dtype=torch.bool).tril()
        self._run(number, paths, states, cache, mask, asks=asks)
        query = cache.queries[number]
        chunks = best_chunks(keys, query, torch.tensor([size]), chunk, budget // chunk)
        starts = (chunks[0] * chunk).tolist()
        return [[i for s in head for i in range(s, min(s + chunk, size))] for head in starts]

    def observed(
        self,
        number: int,
        states: Sequence[Tensor],
        paths: Sequence[Path],
        size: int,
        budget: int,
        policy: Entry,
    ) -> list[list[int]]:
        """Places in a text that each key/value head of a layer holds for its prompt, rising.

        Args:
            number: the layer.
            states: what entered it for the prompt but its last token; none where that was not read.
            paths: prefixes of the text that end there, the shortest first.
            size: tokens of the text.
            budget: most tokens.
            policy: how the last tokens of the prompt vote.
        """
        window = Window.of(policy)
        voted, latest = window.parts(budget, len(states), size)
        behind = [*range(size - latest, size)]
        if not voted:
            return [behind] * self.kv_heads
        model, before = self.module, len(states) - window.size
        assert isinstance(model, CausalModel)
        votes = no_votes(model, before)
        cache = model.new_cache(1, len(states))
        positions, slots = _positions(paths), torch.arange(len(paths))[None]
        writer = cache.writer(positions, slots, len(paths))
        masks = always(Voting(before, window.size, votes))
        entered = torch.stack([*states])[None]
        model.family.run(entered, positions, masks, writer, (number, number + 1))
        chosen = most_voted(votes, window, voted).sort(dim=1).values.tolist()
        return [[*head, *behind] for head in chosen]

    def _lacks(self, what: str) -> MissingCapabilityError:
        name = type(self.module).__name__
        return MissingCapabilityError(f"{name} has no {what}", where="backend oracle")


def stack_of(model: Module | Stack) -> Stack:
    """What the oracle runs of a checkpoint or a module, or of what is a stack already."""
    return Stack(model) if isinstance(model, Module) else model


def _positions(paths: Sequence[Path]) -> Tensor:
    return torch.tensor([[len(path) - 1 for path in paths]])
