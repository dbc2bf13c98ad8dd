"""Teacher forcing of trees that a beam grows: the target's text among the nodes of a draft's pools.

The nodes of such a tree are the draft model's best, point distributions. Under `greedy` and under
`recursive` a point child is accepted exactly when the token that the target chooses there, its best
or its draw, is that child: what is accepted of a tree is the path that spells the emitted text. So
pools grown along the target's own text, greedy or sampled, tell exactly what rounds with these
trees accept when they emit that text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specplan.measure.acceptance.teacher import text_states
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.requests import Request
from specplan.runtime.sampling import best

MOST_QUERIES = 128
"""Drafted nodes, of several positions together, in one pass of the draft model."""


@torch.inference_mode()
def pool_places(
    model: CausalModel,
    text: Sequence[int],
    start: int,
    beam: int,
    layers: int,
    request: Request | None = None,
) -> list[tuple[int, ...]]:
    """Places of a text in the pools that a model grows from each of its positions.

    Scores are sums of log-probabilities, the log-softmax of raw logits; among equal ones the
    shallower node comes first, then the one grown earlier.

    Args:
        model: what drafts.
        text: prompt and continuation, n tokens.
        start: first token to be drafted for, the length of the prompt.
        beam: children of a node that gets any, and nodes of a layer that do.
        layers: how often a pool grows.
        request: whose images stand in the text; None for a text without any.

    Returns:
        For positions start..n-1 a row of `specplan.cost_models.acceptance.pools.Pools`.
    """
    together = max(1, MOST_QUERIES // beam)
    cache = model.new_cache(1, len(text) - 1 + together * beam * (layers - 1))
    states = text_states(model, text, start, cache=cache, request=request)
    scores, children = _children(model.logits(states[None])[0], beam)
    ahead = torch.tensor(text[start:], device=model.device)
    places: list[tuple[int, ...]] = [(1,)] * len(ahead)
    hits = (children == ahead[:, None]).any(1).nonzero()[:, 0]
    for chunk in hits.split(together) if len(hits) else ():
        pools = _Pools.of(chunk + start, scores[chunk], children[chunk])
        while pools.layers < layers:
            pools.grow(model, cache, len(text) - 1, beam)
        for place, row in zip(chunk.tolist(), pools.rows(text), strict=True):
            places[place] = row
    return places


def _children(logits: Tensor, beam: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and tokens of the best children, both `[R, beam]`, from `[R, V]`."""
    tokens = best(logits[None], beam)[0]
    return logits.gather(1, tokens) - logits.logsumexp(1, keepdim=True), tokens


@dataclass
class _Pools:
    """Pools of C positions as they grow, layer by layer.

    Attributes:
        positions: `[C]`, the text position of the first drafted token.
        scores: per layer `[C, M]`, sums of log-probabilities.
        tokens: per layer `[C, M]`.
        parents: per layer `[C, M]`, which of the layer's expanded nodes above; 0 below the root.
        expanded: per layer but the last `[C, beam]`, the nodes that got children, in their order.
        seen: `[C, beam, slots]`, which expanded nodes those of the last layer descend from.
    """

    positions: Tensor
    scores: list[Tensor]
    tokens: list[Tensor]
    parents: list[Tensor]
    expanded: list[Tensor]
    seen: Tensor

    @classmethod
    def of(cls, positions: Tensor, scores: Tensor, tokens: Tensor) -> _Pools:
        """Pools of one layer."""
        none = torch.zeros(len(positions), 1, 0, dtype=torch.bool, device=positions.device)
        return cls(positions, [scores], [tokens], [torch.zeros_like(tokens)], [], none)

    @property
    def layers(self) -> int:
        """Layers grown so far."""
        return len(self.scores)

    def grow(self, model: CausalModel, cache: KVCache, texts: int, beam: int) -> None:
        """One more layer: the best nodes of the newest one are run and get their best children.

        Args:
            model: what drafts.
            cache: its keys and values of the text in slots 0..texts-1; nodes go behind them.
            texts: tokens of text in the cache.
            beam: nodes that are run, and children of each.
        """
        chosen = self.scores[-1].sort(dim=1, descending=True, stable=True).indices[:, :beam]
        chosen = chosen.sort(dim=1).values
        self.expanded.append(chosen)
        self._descend(self.parents[-1].gather(1, chosen))
        logits = self._run(model, cache, texts, self.tokens[-1].gather(1, chosen))
        own, tokens = _children(logits, beam)
        count = len(self.positions)
        above = self.scores[-1].gather(1, chosen)
        self.scores.append((above[:, :, None] + own.view(count, beam, beam)).flatten(1))
        self.tokens.append(tokens.reshape(count, beam * beam))
        parents = torch.arange(beam, device=chosen.device).repeat_interleave(beam)
        self.parents.append(parents.expand(count, -1))

    def _descend(self, above: Tensor) -> None:
        """The newly expanded nodes see what their parents `[C, beam]` saw, and themselves."""
        count, beam = above.shape
        index = above[:, :, None].expand(-1, -1, self.seen.shape[2])
        self_seen = torch.eye(beam, dtype=torch.bool, device=above.device).expand(count, -1, -1)
        self.seen = torch.cat([self.seen.gather(1, index), self_seen], 2)

    def _run(self, model: CausalModel, cache: KVCache, texts: int, tokens: Tensor) -> Tensor:
        """Logits `[C * beam, V]` of the newly expanded nodes.

        All positions run as one row: each node sees the text before its position and its own
        ancestors. Slots lie layer by layer, then position by position.
        """
        count, beam = tokens.shape
        depth, device = len(self.expanded), tokens.device
        own = torch.eye(count, dtype=torch.bool, device=device)[:, None, None, :, None]
        seen = self.seen.view(count, beam, depth, 1, beam)
        nodes = (own & seen).reshape(count * beam, depth * count * beam)
        before = torch.arange(texts, device=device) < self.positions[:, None]
        before = before.repeat_interleave(beam, 0)
        mask = torch.cat([before, nodes], 1)[None]
        last = texts + depth * count * beam
        slots = torch.arange(last - count * beam, last, device=device)[None]
        positions = (self.positions + depth - 1).repeat_interleave(beam)[None]
        return model.forward(tokens.reshape(1, -1), positions, slots, mask, cache)[0]

    def rows(self, text: Sequence[int]) -> list[tuple[int, ...]]:
        """Per position a row of `Pools`: the path that spells the text, and its places."""
        scores, tokens = torch.cat(self.scores, 1).tolist(), [t.tolist() for t in self.tokens]
        parents, expanded = ([t.tolist() for t in part] for part in (self.parents, self.expanded))
        sizes = [part.shape[1] for part in self.scores]
        rows = []
        for row, position in enumerate(self.positions.tolist()):
            path: list[int] = []
            above, base, open_end = 0, 0, 1
            for layer, token in enumerate(text[position : position + self.layers]):
                nodes = enumerate(zip(tokens[layer][row], parents[layer][row], strict=True))
                spelled = next((node for node, pair in nodes if pair == (token, above)), None)
                if spelled is None:
                    break
                path.append(base + spelled)
                base += sizes[layer]
                further = expanded[layer][row] if layer < len(expanded) else []
                open_end = int(spelled in further)
                if not open_end:
                    break
                above = further.index(spelled)
            rows.append((open_end, *_places(scores[row], sizes, path)))
        return rows


def _places(scores: list[float], sizes: list[int], path: list[int]) -> list[int]:
    """Places of a path's nodes, each in all pools that have it, see `Pools`."""
    all_scores, ends, places = np.asarray(scores), np.cumsum(sizes) - 1, list[int]()
    for depth, node in enumerate(path):
        ahead = all_scores > scores[node]
        ahead[:node] |= all_scores[:node] == scores[node]
        places += ahead.cumsum()[ends[depth:]].tolist()
    return places
