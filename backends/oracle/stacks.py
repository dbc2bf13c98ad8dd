"""What a pass needs of a model: its layers one at a time, over whatever they may attend to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.meaning import Path
from specplan.runtime.models.attention import additive_mask
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.models.retrieval import best_chunks
from specplan.runtime.requests import Request


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


class Stack(Protocol):
    """A model, or a drafting head, as the oracle runs it.

    Attributes:
        num_layers: of its stack; 0 for a head without any.
        vocab_size: entries of its logits.
        by_slots: it looks ahead by slots that run through its layers below a node; else by heads.
        slots_enter: the layer at which slots enter.
        optional_features: it runs where a feature is missing, too.
        slots_first: see `specplan.runtime.models.modules.Module`.
    """

    num_layers: int
    vocab_size: int
    by_slots: bool
    slots_enter: int
    optional_features: bool
    slots_first: bool

    def enter(self, path: Path, feature: Tensor | None, step: int) -> Tensor:
        """The state `[width]` that enters the first layer at a path.

        Args:
            path: text and drafted tokens; the last one runs.
            feature: what a track holds `shift` nodes above, None where there is none.
            step: how many steps of this model the feature is from the target's own.
        """
        ...

    def enter_slot(self, state: Tensor, level: int) -> Tensor:
        """The state `[width]` that enters for a slot, `level` below a node whose state is there."""
        ...

    def layer(
        self, number: int, paths: Sequence[Path], context: Context, skips: Skips = NO_SKIPS
    ) -> Tensor:
        """States `[T, width]` of the running paths after a layer."""
        ...

    def logits(self, state: Tensor, path: Path, output: str, step: int) -> Tensor:
        """What the model says after a state: logits `[V]`, or another output by its name."""
        ...

    def level_logits(self, state: Tensor, path: Path, levels: int, step: int) -> Sequence[Tensor]:
        """Logits `[V]` of each level, by heads on the state of a node."""
        ...

    def reads_layer(self, number: int) -> int:
        """The layer of another model's cache that a layer attends to."""
        ...

    def outside(self, request: Request) -> Tensor:
        """What the model's encoder makes of a request, `[S, width]`."""
        ...

    def retrieved(
        self, number: int, states: Tensor, paths: Sequence[Path], asks: int, budget: int, chunk: int
    ) -> list[list[int]]:
        """Places in a text that each key/value head of a layer asks for, rising.

        Args:
            number: the layer.
            states: what entered the layer, `[n, width]`.
            paths: prefixes of the text, the shortest first.
            asks: the place of the token whose query asks.
            budget: most tokens.
            chunk: consecutive tokens that are taken together.
        """
        ...


class Checkpoint:
    """A causal language model as a stack; it has no heads but its own, and reads no other."""

    optional_features = slots_first = False

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self.by_slots, self.slots_enter = model.by_slots, model.slots_enter
        self.num_layers, self.vocab_size = model.num_layers, model.vocab_size

    def enter(self, path: Path, feature: Tensor | None, step: int) -> Tensor:
        """The embedding of the last token; see `Stack.enter`."""
        embedded = self.model.family.embed(torch.tensor([[path[-1]]]), _positions([path]))
        return embedded[0, 0]

    def layer(
        self, number: int, paths: Sequence[Path], context: Context, skips: Skips = NO_SKIPS
    ) -> Tensor:
        """Keys and values of the whole context are made anew; see `Stack.layer`."""
        column = {path: place for place, path in enumerate(context.paths)}
        rows = torch.tensor([column[path] for path in paths])
        size = len(context.paths)
        mask = torch.eye(size, dtype=torch.bool).repeat(len(context.mask), 1, 1)
        mask[:, rows] = context.mask
        cache = self.model.new_cache(1, size)
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
        positions = _positions(paths)
        family, writer = (
            self.model.family,
            cache.writer(positions, torch.arange(len(paths))[None], len(paths)),
        )
        writer.latest = torch.tensor([asks])

        def masks(window: int | None) -> Tensor:
            near = positions[0, :, None] - positions[0] < (window or 1 << 62)
            groups = family.heads // family.kv_heads
            return additive_mask(mask & near, groups, self.model.dtype).transpose(0, 1)

        span = (number, number + 1)
        return family.run(states[None].clone(), positions, masks, writer, span, skips)[0]

    def logits(self, state: Tensor, path: Path, output: str, step: int) -> Tensor:
        """Of the final norm and the head; see `Stack.logits`."""
        if output != "logits":
            raise self._lacks(f"output {output}")
        return self.model.logits(state[None, None])[0, 0]

    def level_logits(self, state: Tensor, path: Path, levels: int, step: int) -> Sequence[Tensor]:
        """Its own logits; see `Stack.level_logits`."""
        if levels > 1:
            raise self._lacks(f"levels={levels}")
        return [self.logits(state, path, "logits", step)]

    def enter_slot(self, state: Tensor, level: int) -> Tensor:
        """See `Stack.enter_slot`."""
        return self.model.enter_slots(state[None, None], level)[0, 0]

    def reads_layer(self, number: int) -> int:
        """See `Stack.reads_layer`."""
        raise self._lacks("reads=")

    def outside(self, request: Request) -> Tensor:
        """See `Stack.outside`."""
        raise self._lacks("an encoder")

    def _lacks(self, what: str) -> MissingCapabilityError:
        return MissingCapabilityError(
            f"{self.model.name} is a plain decoder and has no {what}",
            where="backend oracle",
            remedy="Give a checkpoint that was trained for it.",
        )

    def retrieved(
        self, number: int, states: Tensor, paths: Sequence[Path], asks: int, budget: int, chunk: int
    ) -> list[list[int]]:
        """Chunks whose mean key agrees best with the query; see `Stack.retrieved`."""
        size = len(paths)
        if size <= budget:
            return [[*range(size)]] * self.model.family.kv_heads
        cache = self.model.new_cache(1, size, queries=True)
        mask = torch.ones(1, size, size, dtype=torch.bool).tril()
        self._run(number, paths, states, cache, mask, asks=asks)
        assert cache.queries is not None
        keys, query = cache.keys[number], cache.queries[number]
        chunks = best_chunks(keys, query, torch.tensor([size]), chunk, budget // chunk)
        starts = (chunks[0] * chunk).tolist()
        return [[i for s in head for i in range(s, min(s + chunk, size))] for head in starts]


class Attached:
    """A module as a stack: what eager runs on whole batches, path by path and layer by layer."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.num_layers, self.vocab_size = module.num_layers, module.vocab_size
        self.by_slots, self.slots_enter = module.by_slots, module.slots_enter
        self.optional_features = module.optional_features
        self.slots_first = module.slots_first

    def enter(self, path: Path, feature: Tensor | None, step: int) -> Tensor:
        """See `Stack.enter`."""
        tokens, steps = torch.tensor([[path[-1]]]), torch.tensor([[step]])
        positions, known = _positions([path]), None
        if feature is not None:
            feature, known = feature[None, None], torch.ones(1, 1, dtype=torch.bool)
        entered = self.module.enter(tokens, positions, feature, known, steps)
        if entered is None:
            cache = self.module.new_cache(1, 1)
            mask = torch.ones(1, 1, 1, dtype=torch.bool)
            entered = self.module.hidden(tokens, positions, steps * 0, mask, cache, (0, 0))
        return entered[0, 0]

    def enter_slot(self, state: Tensor, level: int) -> Tensor:
        """See `Stack.enter_slot`."""
        return self.module.enter_slots(state[None, None], level)[0, 0]

    def layer(
        self, number: int, paths: Sequence[Path], context: Context, skips: Skips = NO_SKIPS
    ) -> Tensor:
        """Keys and values of the whole context are made anew; see `Stack.layer`."""
        if len(context.mask) > 1 or context.source is not None:
            raise self._lacks("other caches to read")
        column = {path: place for place, path in enumerate(context.paths)}
        rows, size = torch.tensor([column[path] for path in paths]), len(context.paths)
        mask = torch.eye(size, dtype=torch.bool)[None]
        mask[0, rows] = context.mask[0]
        positions, slots = _positions(context.paths), torch.arange(size)[None]
        cache, span = self.module.new_cache(1, size), (number, number + 1)
        states = context.states[None].clone()
        tokens = torch.zeros_like(slots)
        after = self.module.hidden(
            tokens, positions, slots, mask, cache, span, states, skips
        )  # fmt: skip
        return after[0, rows]

    def logits(self, state: Tensor, path: Path, output: str, step: int) -> Tensor:
        """See `Stack.logits`."""
        return self.module.rows(state[None, None], output, torch.tensor([[step]]))[0, 0]

    def level_logits(self, state: Tensor, path: Path, levels: int, step: int) -> Sequence[Tensor]:
        """See `Stack.level_logits`."""
        states, steps = state[None, None], torch.tensor([[step]])
        return [self.module.rows(states, "logits", steps, level)[0, 0] for level in range(levels)]

    def reads_layer(self, number: int) -> int:
        """See `Stack.reads_layer`."""
        raise self._lacks("other caches to read")

    def outside(self, request: Request) -> Tensor:
        """See `Stack.outside`."""
        return self.module.outside("encoder", [request])

    def retrieved(
        self, number: int, states: Tensor, paths: Sequence[Path], asks: int, budget: int, chunk: int
    ) -> list[list[int]]:
        """See `Stack.retrieved`."""
        raise self._lacks("chunks")

    def _lacks(self, what: str) -> MissingCapabilityError:
        name = type(self.module).__name__
        return MissingCapabilityError(f"{name} has no {what}", where="backend oracle")


def stack_of(model: Module | Stack) -> Stack:
    """What the oracle runs of a checkpoint, of a module, or of what is a stack already."""
    if isinstance(model, CausalModel):
        return Checkpoint(model)
    return Attached(model) if isinstance(model, Module) else model


def _positions(paths: Sequence[Path]) -> Tensor:
    return torch.tensor([[len(path) - 1 for path in paths]])
