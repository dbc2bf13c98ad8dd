"""What the target accepts of its own drafts without some blocks or text, by teacher forcing.

A pass without blocks writes keys and values that the target itself would not. Where a round began
therefore matters, and every place of the text is drafted from anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.ir.blocks import Skips
from specplan.measure.acceptance.teacher import Kept, greedy_ranks, sampled_ranks, text_states
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.requests import Request


class TeacherText:
    """A text along which the target judges its own drafts, with the target's cache of it.

    A round may start at every place of the output: its draft attends to the target's exact keys
    and values of the text before the root, and to its own from the root on. Drafts of the same
    depth run together at all places where the draft was accepted so far.

    Args:
        model: the target.
        request: its prompt and sampling settings.
        output: what the target itself says.
        most: tokens that are drafted at most.
    """

    @torch.inference_mode()
    def __init__(
        self, model: CausalModel, request: Request, output: Sequence[int], most: int
    ) -> None:
        self.model, self.request, self.most = model, request, most
        self.start, self.places = len(request.prompt_tokens), len(output)
        text = [*request.prompt_tokens, *output]
        self.text = torch.tensor(text, device=model.device)
        self._cache = self._new_cache(len(text) + most * self.places)
        self._states = text_states(model, text, self.start, cache=self._cache)

    def _new_cache(self, capacity: int) -> KVCache:
        """Where keys and values of the text and its drafts go."""
        return self.model.new_cache(1, capacity)

    @torch.inference_mode()
    def lengths(self, skips: Skips, most: int | None = None, kept: Kept | None = None) -> list[int]:
        """Accepted tokens of a chain from every place, drafted without some blocks or most text.

        Args:
            skips: the blocks.
            most: tokens that are drafted; default and limit the text's own.
            kept: how many tokens of the text before the root the draft reads, and how many of
                these are the first ones, the others being the latest; None for all.

        Returns:
            One number per place; chains end with the text at the latest.
        """
        found, alive = [0] * self.places, list(range(self.places))
        for depth in range(most or self.most):
            alive = [place for place in alive if place + depth < self.places]
            if not alive:
                break
            judged = self._judge(self._draft(alive, depth, skips, kept), alive, depth)
            alive = [place for place, accepted in zip(alive, judged, strict=True) if accepted]
            for place in alive:
                found[place] += 1
        return found

    def _draft(self, places: list[int], depth: int, skips: Skips, kept: Kept | None) -> Tensor:
        """Logits `[W, V]` of the drafts at some places, `depth` tokens below the root."""
        device, held = self.model.device, len(self.text)
        place = torch.tensor(places, device=device)
        positions = self.start - 1 + place + depth
        own = held + torch.arange(depth + 1, device=device) * self.places + place[:, None]
        keys = torch.arange(held + (depth + 1) * self.places, device=device)
        before = self.start - 1 + place[:, None]
        mask = keys < before
        if kept is not None:
            budget, first = kept
            mask &= (keys < first) | (keys >= before - budget + first)
        mask.scatter_(1, own, True)
        hidden = self.model.hidden(
            self.text[positions][None],
            positions[None],
            own[None, :, -1],
            mask[None],
            self._cache,
            skips=skips,
        )
        return self.model.logits(hidden)[0]

    def _judge(self, rows: Tensor, places: list[int], depth: int) -> list[bool]:
        """Whether the token that each place drafts at this depth is accepted."""
        at = [place + depth for place in places]
        if self.request.temperature == 0.0:
            wanted = self.text[self.start :][at].tolist()
            return [rank == 0 for rank in greedy_ranks(rows, wanted, 1)]
        target = self.model.logits(self._states[None, at])[0]
        numbers = [place * self.most + depth for place in places]
        return [rank == 0 for rank in sampled_ranks(target, rows, self.request, 1, numbers)]
