"""Teacher forcing: what the target would accept from a drafter along its own text.

At temperature 0 a drafted path is accepted exactly where it is the target's own text, so one pass
of the draft model over that text gives the rank of the accepted child at every position. At other
temperatures the rule itself judges children drawn from the draft's distribution at each position:
since the rule keeps the target's distribution, text and acceptance have the right distributions,
only their dependence within a position is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from specplan.cost_models.acceptance.evidence.lengths import NOTHING
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.grammar import along
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, draw_distinct, probabilities
from specplan.runtime.sources.text import longest_match
from specplan.runtime.uniforms import uniforms

NO_RANK = -1
SinkWindow = tuple[int, int]
"""Tokens of a text that are read, and how many of them are sinks, the first ones; the others are
the latest."""


@dataclass(frozen=True)
class TracedText:
    """A prompt and the target's output after it, along which drafters are traced.

    Attributes:
        index: of the prompt.
        name: of the prompt.
        request: for the prompt, at the workload's settings.
        output: tokens of the target.
        target: the target.
    """

    index: int
    name: str
    request: Request
    output: tuple[int, ...]
    target: CausalModel

    @property
    def tokens(self) -> list[int]:
        """Prompt and output."""
        return [*self.request.prompt_tokens, *self.output]

    @property
    def start(self) -> int:
        """The first token to be drafted for."""
        return len(self.request.prompt_tokens)

    @cached_property
    def _states(self) -> Tensor:
        return text_states(self.target, self.tokens, self.start, request=self.request)

    @property
    def logits(self) -> Tensor:
        """The target's logits along the output, `[n, V]`."""
        return self.allowed(self.target.logits(self._states[None])[0])

    def allowed(self, logits: Tensor) -> Tensor:
        """Logits `[n, V]` along the output under the request's grammar."""
        return allowed_along(self.request, self.output, logits, range(len(self.output)))


def allowed_along(
    request: Request, output: Sequence[int], logits: Tensor, places: Sequence[int]
) -> Tensor:
    """Logits of tokens of an output, without those that the request's grammar rules out.

    Args:
        request: with a grammar, or without one.
        output: its output.
        logits: `[W, V]`, of what the target or a drafter puts at each place.
        places: W places of the output.
    """
    if request.grammar is None:
        return logits
    flags = torch.from_numpy(along(request.grammar, output, logits.shape[1]))
    return logits.masked_fill(flags[list(places)].to(logits.device), -torch.inf)


@torch.inference_mode()
def text_logits(
    model: CausalModel,
    text: Sequence[int],
    start: int,
    layers: int | None = None,
    window: SinkWindow | None = None,
    request: Request | None = None,
) -> Tensor:
    """Logits `[n - start, V]` that predict tokens start..n-1 of a text; see `text_states`."""
    states = text_states(model, text, start, layers, window=window, request=request)
    return model.logits(states[None])[0]


@torch.inference_mode()
def text_states(
    model: CausalModel,
    text: Sequence[int],
    start: int,
    layers: int | None = None,
    cache: KVCache | None = None,
    window: SinkWindow | None = None,
    request: Request | None = None,
) -> Tensor:
    """Hidden states `[n - start, hidden]` from which tokens start..n-1 of a text are predicted.

    Args:
        model: the model.
        text: its n tokens.
        start: first token that is predicted.
        layers: leave the model after this many layers; None runs all.
        cache: where keys and values go, token i to slot i, the last token left out; None for a
            temporary one.
        window: the tokens up to itself that each token reads; None for all.
        request: whose images stand in the text; None for a text without any.
    """
    tokens = torch.tensor([list(text[:-1])], device=model.device)
    positions = torch.arange(len(text) - 1, device=model.device)[None]
    mask = torch.ones(1, len(text) - 1, len(text) - 1, dtype=torch.bool, device=model.device).tril()
    if window is not None:
        budget, sinks = window
        mask &= (positions < sinks) | (positions > positions.mT - budget + sinks)
    store = model.new_cache(1, len(text)) if cache is None else cache
    store.images = None if request is None else model.images_of([request])
    span = (0, layers or model.num_layers)
    return model.hidden(tokens, positions, positions, mask, store, span)[0, start - 1 :]


def greedy_ranks(draft: Tensor, tokens: list[int], most: int) -> list[int]:
    """Rank of each token among the draft's choices, -1 from `most` on; ties by token id.

    Args:
        draft: logits `[n, V]`.
        tokens: the n tokens that the target chose.
        most: ranks counted.
    """
    wanted = torch.tensor(tokens, device=draft.device)[:, None]
    mine = draft.gather(1, wanted)
    ids = torch.arange(draft.shape[1], device=draft.device)
    ahead = (draft > mine) | ((draft == mine) & (ids < wanted))
    ranks = ahead.sum(1)
    return torch.where(ranks < most, ranks, NO_RANK).tolist()


@torch.inference_mode()
def sampled_ranks(
    target: Tensor,
    draft: Tensor,
    request: Request,
    most: int,
    places: Sequence[int] | None = None,
) -> list[int]:
    """Rank of the drawn child that the recursive rule accepts at each position, -1 for none.

    Args:
        target: logits `[n, V]`.
        draft: logits `[n, V]`.
        request: its settings and seed.
        most: children drawn without replacement.
        places: numbers of the positions, each with uniforms of its own; default 0 to n - 1.
    """
    count = target.shape[0]
    settings = SamplingSettings.of([request] * count)
    target_probs = probabilities(target[:, None], settings)
    draft_probs = probabilities(draft[:, None], settings)
    most = min(most, target.shape[1])
    places = range(count) if places is None else places
    drawn = uniforms([request.seed] * count, "teacher.draft", places, 0, most)
    children = draw_distinct(draft_probs, drawn[:, None])[:, 0]
    tree = DraftedTree(
        tokens=children,
        parents=(-1,) * most,
        probs=draft_probs,
        probs_index=(0,) * most,
        distinct=True,
    )
    judging = uniforms([request.seed] * count, "teacher.accept", places, 0, most + 1)
    judged = RULES["recursive"].accept(tree, target_probs.expand(-1, most + 1, -1), judging)
    return judged.path[:, 0].tolist()  # type: ignore[no-any-return]


def lookup_lengths(text: list[int], start: int, match: tuple[int, int], most: int) -> list[int]:
    """Tokens of the looked-up continuation that the text goes on with, from each position.

    `NOTHING` where nothing is proposed.

    Args:
        text: prompt and continuation.
        start: first position to count, the length of the prompt.
        match: shortest and longest suffix looked for, tokens.
        most: tokens proposed at most.
    """
    copies = copies_along(text, start, match, most)
    return [accepted if matched else NOTHING for matched, accepted in copies]


def copies_along(
    text: list[int], start: int, match: tuple[int, int], most: int
) -> list[tuple[int, int]]:
    """`lookup_lengths` with the tokens that were matched before them, 0 for none.

    Accepted tokens are 0 where nothing is matched.
    """
    tokens, copies = np.asarray(text, dtype=np.int64), []
    for position in range(start, len(text)):
        matched, proposed = longest_match(
            tokens[:position], shortest=match[0], longest=match[1], length=most
        )
        follows = tokens[position : position + len(proposed)]
        same = proposed[: len(follows)] == follows
        copies.append((matched, int(np.logical_and.accumulate(same).sum())))
    return copies
