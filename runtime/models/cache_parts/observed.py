"""Parts of a cache that the last tokens of a prompt attend to most.

SnapKV (Li et al. 2024, arXiv 2404.14469, section 4) lets the queries of an observation window, the
last tokens of a prompt, vote for the tokens before it: per layer and head, the attention that these
queries pay to each is added up, smoothed over neighbours, and the tokens with the most are kept.
MagicDec (arXiv 2408.11049) drafts with such a cache. Votes of query heads that share a key/value
head are added. The text behind the window has no votes: it is kept while it fits, up to half of
the budget where votes could fill the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specplan.ir.values import Entry
from specplan.runtime.models.attention import always, weights_and_outputs
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import CacheWriter, KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request


@dataclass(frozen=True)
class Window:
    """How votes are taken.

    Attributes:
        size: tokens that vote.
        pool: tokens over which votes are smoothed, odd.
    """

    size: int
    pool: int

    @classmethod
    def of(cls, policy: Entry) -> Window:
        """As a plan declares it; the defaults are those of the table of policies."""
        return cls(policy.integer("window", 32), policy.integer("pool", 5))

    def parts(self, budget: int, prompt: int, length: int) -> tuple[int, int]:
        """How many tokens of a text are kept for their votes, and how many latest ones.

        Args:
            budget: most tokens that are kept.
            prompt: tokens of the prompt, without its last one; 0 where it has not been read.
            length: tokens of the text.
        """
        if length <= budget:
            return 0, length
        behind = min(length - prompt + self.size, budget // 2) if prompt else budget
        voted = min(budget - behind, max(prompt - self.size, 0))
        return voted, budget - voted


@dataclass(frozen=True)
class Voting:
    """A mask under which the queries of one layer vote; it attends by itself.

    Attributes:
        size: tokens that may be voted for, the first ones.
        voters: tokens that vote, the last ones.
        votes: `[H_kv, size]`, added to.
    """

    size: int
    voters: int
    votes: Tensor

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """See `specplan.runtime.models.attention.OwnAttention`; of one row."""
        places = torch.arange(key.shape[2], device=key.device)
        seen = places <= places[-query.shape[2] :, None]
        given, exact = (query, key, value, scaling), self.votes.dtype
        weights, mixed = weights_and_outputs(*given, seen, exact)
        self.votes.add_(weights[:, :, -self.voters :, : self.size].sum((1, 2)))
        return mixed


class _Reader(CacheWriter):
    """A pass over the last tokens of one row's text, whose keys and values are there already."""

    def __init__(self, cache: KVCache, row: int, used: int) -> None:
        self.cache, self.row, self.used = cache, row, used

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of the text."""
        one = slice(self.row, self.row + 1)
        both = self.cache.keys[layer_idx][one], self.cache.values[layer_idx][one]
        return self.read(*both, keys.dtype)


def no_votes(model: CausalModel, size: int) -> Tensor:
    """Zeros `[H_kv, size]`."""
    shape = model.family.kv_heads, size
    return torch.zeros(shape, dtype=model.logits_dtype, device=model.device)


def most_voted(votes: Tensor, window: Window, most: int) -> Tensor:
    """Tokens with the most votes, most first, of equals the earlier: int64 `[H_kv, <= most]`.

    Args:
        votes: `[H_kv, N]`.
        window: how they are smoothed: by the mean over neighbours, zeros beyond the ends.
        most: tokens.
    """
    smooth = functional.avg_pool1d(votes[None], window.pool, 1, window.pool // 2)[0]
    return smooth.sort(dim=1, descending=True, stable=True).indices[:, :most]


class ObservedPrompts:
    """What the last tokens of some prompts attend to; looked up once per prompt.

    Args:
        model: whose cache it is; no layer has a window.
        prompts: tokens of each row's prompt, without its last one.
        window: how votes are taken.
    """

    def __init__(
        self, model: CausalModel, prompts: Sequence[Sequence[int]], window: Window
    ) -> None:
        self.model, self.prompts, self.window = model, prompts, window
        self.ranked: dict[int, list[Tensor]] = {}

    @classmethod
    def of(cls, model: Module, requests: Sequence[Request], policy: Entry) -> ObservedPrompts:
        """Those of a batch, as a plan's policy has votes taken."""
        assert isinstance(model, CausalModel), "binding refuses other models"
        return cls(model, [one.prompt_tokens[:-1] for one in requests], Window.of(policy))

    def refresh(
        self, into: KVCache, whole: KVCache, lengths: Sequence[int], budget: int
    ) -> list[int]:
        """Fill a small cache with the tokens that were voted for, and the latest ones.

        Args:
            into: the small cache; the positions of its slots are invalid afterwards.
            whole: the cache with the texts at its first slots; of one row for all, or of as many
                as `into`.
            lengths: tokens of the text that each row sees.
            budget: most tokens that are kept.

        Returns:
            Omitted tokens of each row's text.
        """
        size = min(max(lengths), budget)
        if not size:
            return [0] * len(lengths)
        parts = []
        for row, length in enumerate(lengths):
            one = min(row, whole.batch - 1)
            prompt = len(self.prompts[one])
            parts.append(self.window.parts(budget, prompt if length >= prompt else 0, length))
            if parts[-1][0] and one not in self.ranked:
                self.ranked[one] = self.rank(whole, one, budget)
        rows = torch.arange(len(lengths), device=whole.positions.device)[:, None, None]
        stores = zip(whole.keys, whole.values, into.keys, into.values, strict=True)
        for layer, (keys, values, new_keys, new_values) in enumerate(stores):
            heads = torch.arange(keys.shape[1], device=keys.device)[:, None]
            source = torch.stack([
                self._source(min(row, whole.batch - 1), layer, *part, length, size)
                for row, (part, length) in enumerate(zip(parts, lengths, strict=True))
            ])  # fmt: skip
            for old, new in ((keys, new_keys), (values, new_values)):
                new[:, :, :size] = old.expand(len(lengths), -1, -1, -1)[rows, heads, source]
        return [length - min(length, budget) for length in lengths]

    def _source(
        self, row: int, layer: int, voted: int, latest: int, length: int, size: int
    ) -> Tensor:
        """Places in a text that each head of a layer keeps, rising, int64 `[H_kv, size]`."""
        device, heads = self.model.device, self.model.family.kv_heads
        last = torch.arange(length - latest, length, device=device).expand(heads, -1)
        chosen = self.ranked[row][layer][:, :voted].sort(dim=1).values if voted else last[:, :0]
        return functional.pad(torch.cat([chosen, last], 1), (0, size - voted - latest))

    @torch.inference_mode()
    def rank(self, whole: KVCache, row: int, most: int) -> list[Tensor]:
        """Per layer, what the last tokens of a prompt attend to; see `most_voted`."""
        model, prompt = self.model, self.prompts[row]
        start = len(prompt) - self.window.size
        tokens = torch.tensor([prompt[start:]], device=model.device)
        places = torch.arange(start, len(prompt), device=model.device)[None]
        reader, ranked = _Reader(whole, row, len(prompt)), []
        hidden = model.family.embed(tokens, places)
        for layer in range(model.num_layers):
            votes = no_votes(model, start)
            masks = always(Voting(start, self.window.size, votes))
            hidden = model.family.run(hidden, places, masks, reader, (layer, layer + 1))
            ranked.append(most_voted(votes, self.window, most))
        return ranked
