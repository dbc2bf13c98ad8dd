"""Small random models for the oracle: a transformer with all its extras, and one class of heads.

They prove what plans mean, not what drafts are worth: every weight is random, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specplan.backends.oracle.stacks import Context
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.meaning import Path
from specplan.ir.values import Entry
from specplan.runtime.requests import Request

WIDTH, HEADS = 16, 2
SLOT = 72
"""Most slots of a model."""


def _norm(states: Tensor) -> Tensor:
    return states / (states.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


def _positions(paths: Sequence[Path]) -> Tensor:
    place = torch.tensor([[float(len(path))] for path in paths], dtype=torch.float64)
    rates = 50.0 ** -(torch.arange(WIDTH // 2, dtype=torch.float64) / (WIDTH // 2))
    return torch.cat([(place * rates).sin(), (place * rates).cos()], -1)


class _Weights:
    """Random matrices, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        made = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
        return made * scale / shape[-2] ** 0.5


class Block:
    """Attention and an MLP with residuals; a recurrent one decays over its prefix instead."""

    def __init__(self, weights: _Weights, scale: float, recurrent: bool = False) -> None:
        self.query, self.key, self.value = (weights(WIDTH, WIDTH) for _ in range(3))
        self.out = weights(WIDTH, WIDTH, scale=scale)
        self.up, self.down = weights(WIDTH, 2 * WIDTH), weights(2 * WIDTH, WIDTH, scale=scale)
        self.recurrent = recurrent

    def __call__(
        self, paths: Sequence[Path], context: Context, attention: bool = True, mlp: bool = True
    ) -> Tensor:
        columns = {path: place for place, path in enumerate(context.paths)}
        states = context.states[[columns[path] for path in paths]]
        if attention:
            states = states + self._mix(states, paths, context) @ self.out
        if mlp:
            states = states + torch.tanh(_norm(states) @ self.up) @ self.down
        return states

    def keys(self, states: Tensor, paths: Sequence[Path]) -> Tensor:
        """Keys `[n, H, D]`."""
        return ((_norm(states) + _positions(paths)) @ self.key).unflatten(-1, (HEADS, -1))

    def queries(self, states: Tensor, paths: Sequence[Path]) -> Tensor:
        """Queries `[n, H, D]`."""
        return ((_norm(states) + _positions(paths)) @ self.query).unflatten(-1, (HEADS, -1))

    def _mix(self, states: Tensor, paths: Sequence[Path], context: Context) -> Tensor:
        values = (_norm(context.states) @ self.value).unflatten(-1, (HEADS, -1))
        mask = context.mask.expand(HEADS, -1, -1)
        if self.recurrent:
            distance = torch.tensor([[len(p) - len(c) for c in context.paths] for p in paths])
            weights = torch.where(mask, 0.8 ** distance.clamp(min=0).double(), 0.0)
            mixed = torch.einsum("htu,uhd->thd", weights, values).flatten(1)
            return mixed * torch.tanh(self.queries(states, paths).flatten(1))
        queries, keys = self.queries(states, paths), self.keys(context.states, context.paths)
        scores = torch.einsum("thd,uhd->htu", queries, keys).masked_fill(~mask, -1e9)
        if context.source is not None:
            source = context.source[:, :WIDTH]
            more = (_norm(source) @ self.key).unflatten(-1, (HEADS, -1))
            also = torch.einsum("thd,uhd->htu", queries, more)
            also = also.masked_fill(~context.source_mask, -1e9)
            scores = torch.cat([scores, also], -1)
            values = torch.cat([values, (_norm(source) @ self.value).unflatten(-1, (HEADS, -1))])
        weights = (scores / (WIDTH / HEADS) ** 0.5).softmax(-1)
        return torch.einsum("htu,uhd->thd", weights, values).flatten(1)


class Toy:
    """A target or draft model.

    Attributes:
        slots_enter: the layer at which slots enter the stack.
    """

    optional_features, by_slots, slots_first = False, True, False
    kv_heads = HEADS

    def __init__(
        self,
        layers: int = 4,
        vocabulary: int = 24,
        seed: int = 0,
        *,
        like: Toy | None = None,
        noise: float = 0.0,
        recurrent: Sequence[int] = (),
        slots_enter: int = 0,
    ) -> None:
        weights = _Weights(seed)
        self.num_layers, self.vocab_size, self.slots_enter = layers, vocabulary, slots_enter
        self.embedding = weights(vocabulary, WIDTH, scale=vocabulary**0.5)
        self.head = weights(WIDTH, WIDTH) @ self.embedding.T
        scale = 0.5 / max(layers, 1) ** 0.5
        self.blocks = [Block(weights, scale, number in recurrent) for number in range(layers)]
        self.slots = weights(SLOT, WIDTH, scale=SLOT**0.5)
        self.moved = weights(SLOT, WIDTH, WIDTH)
        if like is not None:
            self.embedding, self.blocks = like.embedding, like.blocks[:layers]
            self.head = like.head + noise * weights(*like.head.shape, scale=WIDTH**0.5)

    def enter(
        self, features: Mapping[Path, Tensor | None], steps: Mapping[Path, int]
    ) -> dict[Path, Tensor]:
        """The tokens' embeddings."""
        return {path: self.embedding[path[-1]] + 0.1 * _positions([path])[0] for path in features}

    def enter_slot(self, state: Tensor, level: int) -> Tensor:
        """A trained embedding; in mid-stack, what becomes of the node's state."""
        return state @ self.moved[level - 1] if self.slots_enter else self.slots[level - 1]

    def layer(
        self, number: int, paths: Sequence[Path], context: Context, skips: Skips = NO_SKIPS
    ) -> Tensor:
        """One block, without what is left out."""
        attention, mlp = number not in skips.attentions, number not in skips.mlps
        return self.blocks[number](paths, context, attention, mlp)

    def logits(self, state: Tensor, path: Path, output: str, step: int) -> Tensor:
        """Of the head, or a score."""
        if output == "score":
            return torch.sigmoid(state.sum()[None])
        return 2.5 * _norm(state) @ self.head

    def level_logits(self, state: Tensor, path: Path, levels: int, step: int) -> list[Tensor]:
        """A target has slots, and no heads but its own."""
        return [self.logits(state, path, "logits", step)]

    def reads_layer(self, number: int) -> int:
        """The layer of another cache that this layer attends to."""
        return number

    def outside(self, request: Request) -> Tensor:
        """Five random states, as an encoder would give."""
        return _Weights(len(request.prompt_tokens))(5, WIDTH)

    def retrieved(
        self, number: int, states: Tensor, paths: Sequence[Path], asks: int, budget: int, chunk: int
    ) -> list[list[int]]:
        """Chunks by the product of their mean key and the query."""
        size = len(paths)
        if size <= budget:
            return [[*range(size)]] * HEADS
        block, chunks = self.blocks[number], range(0, size, chunk)
        keys, query = block.keys(states, paths), block.queries(states, paths)[asks]
        chosen = []
        for head in range(HEADS):
            scores = [float(keys[s : s + chunk, head].mean(0) @ query[head]) for s in chunks]
            must = {0, len(scores) - 1, len(scores) - 2}
            order = sorted(range(len(scores)), key=lambda i: (i not in must, -scores[i], i))
            starts = sorted(i * chunk for i in order[: budget // chunk])
            chosen.append([i for s in starts for i in range(s, min(s + chunk, size))])
        return chosen

    def observed(
        self,
        number: int,
        states: Sequence[Tensor],
        paths: Sequence[Path],
        size: int,
        budget: int,
        policy: Entry,
    ) -> list[list[int]]:
        """The latest tokens."""
        return [[*range(max(size - budget, 0), size)]] * HEADS


@dataclass(frozen=True)
class HeadShape:
    """What a drafting head is, whatever its family.

    Attributes:
        tokens: embeddings that it reads, of the last so many tokens of the path.
        features: width of what it reads of the target, in widths of the target's states.
        combine: how these become the state that enters: "join" (a matrix), "feature" or "token"
            alone, "rnn", "mlp" (tanh of a sum), "stack" (the feature and every embedding since),
            "either" (the feature where there is one, else the token).
        layers: transformer layers with a cache of its own.
        stages: steps with weights of their own.
        levels: of the logits that one pass gives.
        by_slots: levels are slots that run through the layers; else heads on the node's state.
        score: it gives a number instead of logits.
        optional: it enters by its token alone where a feature is missing.
        reads: layer of another cache that it attends to, "same" or "top".
    """

    tokens: int = 1
    features: int = 1
    combine: str = "join"
    layers: int = 0
    stages: int = 1
    levels: int = 1
    by_slots: bool = False
    score: bool = False
    optional: bool = False
    reads: str = "same"


class Head:
    """One class for every drafter that reads states of the target."""

    slots_enter, slots_first = 0, False

    def __init__(self, shape: HeadShape, target: Toy, seed: int = 1) -> None:
        weights = _Weights(100 + seed)
        self.shape, self.target = shape, target
        self.num_layers, self.vocab_size = shape.layers, target.vocab_size
        self.optional_features, self.by_slots = shape.optional, shape.by_slots
        wide = (shape.tokens + shape.features) * WIDTH
        self.first = weights(shape.stages, wide, WIDTH)
        self.later = weights(shape.stages, (shape.tokens + 1) * WIDTH, WIDTH)
        self.state, self.token = weights(WIDTH, WIDTH), weights(WIDTH, WIDTH)
        self.residual = weights(max(shape.stages, shape.levels), WIDTH, WIDTH, scale=0.3)
        self.blocks = [Block(weights, 0.3) for _ in range(shape.layers)]
        self.slots = weights(max(shape.levels, 1), WIDTH, scale=max(shape.levels, 1) ** 0.5)

    def _embeddings(self, path: Path) -> list[Tensor]:
        count = self.shape.tokens
        last = [self.target.embedding[token] for token in path[-count:]] if count else []
        return [torch.zeros(WIDTH, dtype=torch.float64)] * (count - len(last)) + last

    def enter(
        self, features: Mapping[Path, Tensor | None], steps: Mapping[Path, int]
    ) -> dict[Path, Tensor]:
        """See `HeadShape.combine`."""
        return {path: self._enter(path, given, steps[path]) for path, given in features.items()}

    def _enter(self, path: Path, feature: Tensor | None, step: int) -> Tensor:
        shape, own = self.shape, step > 0
        stage, tokens = step % shape.stages, self._embeddings(path)
        wide = shape.features * WIDTH
        given = torch.zeros(wide, dtype=torch.float64) if feature is None else feature
        match shape.combine:
            case "feature":
                return given[:WIDTH]
            case "token":
                return tokens[-1]
            case "either":
                return tokens[-1] if feature is None else given @ self.first[0][: len(given)]
            case "rnn":
                before = given[WIDTH:] if own else torch.zeros(WIDTH, dtype=torch.float64)
                moved = torch.tanh(tokens[-1] @ self.token + before @ self.state)
                return torch.cat([given[:WIDTH], moved])
            case "mlp":
                return torch.tanh(_norm(given[:WIDTH] @ self.later[stage][:WIDTH] + tokens[-1]))
            case "stack":
                return given[:WIDTH] + (tokens[-1] @ self.state if own else tokens[-1])
        joined = torch.cat([*tokens, given])
        matrix = self.first[stage] if len(joined) == self.first.shape[1] else self.later[stage]
        return joined @ matrix

    def enter_slot(self, state: Tensor, level: int) -> Tensor:
        """A trained embedding."""
        return self.slots[level]

    def layer(
        self, number: int, paths: Sequence[Path], context: Context, skips: Skips = NO_SKIPS
    ) -> Tensor:
        """One block."""
        return self.blocks[number](paths, context)

    def logits(self, state: Tensor, path: Path, output: str, step: int) -> Tensor:
        """Of the target's own head on a state of this one, or a score."""
        if self.shape.score or output == "score":
            return torch.sigmoid(0.3 * state.sum()[None])
        if self.shape.combine == "rnn":
            state = state[:WIDTH] + state[WIDTH:]
        if self.shape.stages > 1:
            state = state + torch.tanh(_norm(state) @ self.residual[step % self.shape.stages])
        return 2.5 * _norm(state) @ self.target.head

    def level_logits(self, state: Tensor, path: Path, levels: int, step: int) -> list[Tensor]:
        """A residual matrix for each level."""
        if levels == 1 or self.by_slots:
            return [self.logits(state, path, "logits", step)]
        states = [state + torch.tanh(_norm(state) @ self.residual[i]) for i in range(levels)]
        return [2.5 * _norm(one) @ self.target.head for one in states]

    def outside(self, request: Request) -> Tensor:
        """The target's."""
        return self.target.outside(request)

    def reads_layer(self, number: int) -> int:
        """The same layer of the target's cache, or the last ones."""
        top = self.target.num_layers - self.num_layers
        return number + top if self.shape.reads == "top" else number

    def retrieved(
        self, number: int, states: Tensor, paths: Sequence[Path], asks: int, budget: int, chunk: int
    ) -> list[list[int]]:
        """Heads keep no small caches; everything is visible."""
        return [[*range(len(paths))]] * HEADS

    def observed(
        self,
        number: int,
        states: Sequence[Tensor],
        paths: Sequence[Path],
        size: int,
        budget: int,
        policy: Entry,
    ) -> list[list[int]]:
        """The latest tokens."""
        return [[*range(max(size - budget, 0), size)]] * HEADS
