"""Teacher forcing of heads: ranks of accepted tokens among a head's choices, depth by depth.

A head drafts its first token from the target's states and others from its own states, so that ranks
depend on where a round began. Under `greedy` and `recursive` a best rank is accepted exactly when
the target chooses that token, and what the target chooses is the text. Draws are judged by the
rule itself, as those of a draft model (`specplan.measure.acceptance.teacher`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.measure.acceptance.teacher import (
    NO_RANK,
    TracedText,
    allowed_along,
    greedy_ranks,
    sampled_ranks,
)
from specplan.runtime.images.inputs import ImageInputs
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled

MOST_DEPTH = 10
"""Levels that are measured of heads which may draft any number."""
ROOTS = 32
"""Roots of blocks that are drafted together."""


def depth_of(head: Drafter) -> int:
    """Levels that are measured of a head."""
    one = head.description
    if one.levels.count > 1 or one.levels.by == "slots":
        return one.levels.reach
    return one.steps if one.steps > 1 else MOST_DEPTH


def on_first_layers(head: Drafter) -> bool:
    """Whether it continues the target's first layers, which run drafted tokens for it."""
    return not head.description.begins and head.description.join == "feature"


def drafts_at_once(head: Drafter) -> bool:
    """Whether it drafts in the first round too, in which the target first reads the last token."""
    return on_first_layers(head) or bool(head.description.levels.skipped)


@torch.inference_mode()
def head_ranks(
    heads: Sequence[Drafter], text: TracedText, depth: int, most: int, *, drawn: bool = False
) -> list[tuple[int, ...]]:
    """Rows of `specplan.cost_models.acceptance.evidence.depth_ranks` for one text.

    Args:
        heads: a head, or the target's modules.
        text: prompt and output.
        depth: levels that are measured.
        most: ranks that are told apart.
        drawn: children are drawn without replacement, else they are the best ranks.
    """
    head, tokens, start = heads[0], text.tokens, text.start
    target = text.target
    given = torch.tensor([tokens[:-1]], device=target.device)
    images, layers = target.images_of([text.request]), head.description.reads.layers
    features = text_features(target, Texts.alone(given), layers, images)
    blocks, judging = head.description.join == "block", text.logits if drawn else features
    ranks = torch.full((len(tokens) - start, depth), NO_RANK)
    # in the first round the target reads the prompt: only layers of its own draft beside that
    roots = torch.arange(start - drafts_at_once(head), len(tokens) - 1)
    for part in roots.split(ROOTS if blocks else max(len(roots), 1)):
        if not len(part):
            continue
        rows = part.to(target.device)
        for step, logits in enumerate(unrolled(heads, given, features, depth, rows)):
            own = logits[0]
            stop = min(len(part), len(tokens) - 1 - step - int(part[0]))
            if stop <= 0:
                break
            first = int(part[0]) + 1 + step
            places = range(first - start, first - start + stop)
            own = allowed_along(text.request, text.output, own[:stop], places)
            if drawn:  # numbers of their own at each depth
                rounds = [place + step * len(tokens) for place in places]
                judge = judging[places.start : places.stop]
                own_ranks = sampled_ranks(judge, own, text.request, most, rounds)
            else:
                own_ranks = greedy_ranks(own, tokens[first : first + stop], most)
            ranks[first - start : first - start + stop, step] = torch.tensor(own_ranks)
    return [tuple(row) for row in ranks.tolist()]


def text_features(
    target: CausalModel, texts: Texts, layers: Sequence[int], images: ImageInputs | None = None
) -> Tensor:
    """Hidden states of a target at the tokens of texts `[B, T]`, of several layers joined.

    Args:
        target: the target.
        texts: one in a row, or several.
        layers: after how many layers they are taken; empty for after the last one.
        images: of the texts, as the target reads them.
    """
    tokens, mask = texts.tokens, texts.causal()
    batch, length = tokens.shape
    slots = torch.arange(length, device=tokens.device).expand(batch, -1)
    cache, parts, before = target.new_cache(batch, length), dict[int, Tensor](), 0
    states: Tensor | None = None
    cache.images = images
    for layer in sorted({*layers} or {target.num_layers}):
        states = target.hidden(tokens, texts.positions, slots, mask, cache, (before, layer), states)
        parts[layer], before = states.clone(), layer
    return torch.cat([parts[layer] for layer in layers or (target.num_layers,)], 2)
