"""How the Spec-Bench repository runs each method: passes, kernels, and what the host waits for.

Counted by reading hemingkx/Spec-Bench (Apache-2.0) and the repositories that it copies from, with
transformers 4.37.1. A decoder layer of transformers launches 42 kernels: 16 of the two norms, 4
projections, 12 of the rotary embedding, 2 of the cache, 1 attention, 5 of the MLP, 2 additions.
Recycling's copy of it does attention in 7 kernels, and keeps cache lengths in tensors on the host,
a fifth of a launch each: 50. The other tree methods carry an older copy, whose rotary embedding and
masks take a dozen more views, a third of a launch each: 54. Counts of small operations are to the
nearest ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from published_rows.eager_host import Pass

LAYER, RECYCLING_LAYER, TREE_LAYER = 42, 50, 54
TREE_GLUE, TREE_READS = 60, 3
"""Candidates, gathered logits, longest path, moved cache rows; accept length, end of sequence."""

PLAIN = Pass((1,), LAYER)
PLAIN_LAUNCHES, PLAIN_READS = 35, 1
"""`generate` around a plain step: inputs, logits processors, arg max, stopping criteria."""


@dataclass(frozen=True)
class Method:
    """One round of a method.

    Attributes:
        verify: the target's pass, root included.
        launches: small operations outside of passes.
        reads: results that the host waits for.
        draft: a drafting pass, over the target's own sizes.
        drafts: how many of them.
        head_rows: rows of extra vocabulary heads, one entry per head.
    """

    verify: Pass
    launches: float
    reads: float
    draft: Pass | None = None
    drafts: int = 0
    head_rows: tuple[int, ...] = ()


def eagle_draft(width: int) -> Pass:
    """One level: embedding, fusion, mask (20), one layer without its first norm, head, top-k."""
    return Pass((width,), LAYER, other_kernels=58, layers=1)


_EAGLE2_TREE, _EAGLE2_READS = 120, 8
"""Reranking, then mask and paths of 59 nodes on the host, node by node."""

_HYDRA_HEADS, _HYDRA_PATHS = 4, 22
"""Heads of four layers; 22 nodes have children: top-k and two joins each, half of them indexed by
a Python list, which is copied to the device and waited for."""

METHODS: Mapping[str, Method] = {
    # up to 10 copied tokens, or 1 where nothing matches; three n-gram sizes are searched on the
    # device, each with lists sent to and fro
    "PLD": Method(Pass((2, 11), LAYER), launches=60, reads=10),
    # 63 nodes; four heads of one residual block over all nodes
    "Medusa": Method(Pass((64,), TREE_LAYER), 76, TREE_READS, head_rows=(64,) * 4),
    # one attention layer over the accepted tokens, then the heads one after the other
    "Hydra": Method(
        Pass((64,), TREE_LAYER),
        launches=TREE_GLUE + _HYDRA_HEADS * 13 + _HYDRA_PATHS * 4,
        reads=TREE_READS + 1 + 14,
        draft=Pass((4,), TREE_LAYER, layers=1, heads=0),
        drafts=1,
        head_rows=(1, 10, 10, 1),
    ),
    # `mc_sim_7b_63`: 25 nodes in five levels
    "EAGLE": Method(Pass((26,), TREE_LAYER), TREE_GLUE, TREE_READS, eagle_draft(8), 5),
    # 60 nodes with the root, five levels of 10 after the first
    "EAGLE2": Method(
        Pass((60,), TREE_LAYER),
        TREE_GLUE + _EAGLE2_TREE,
        TREE_READS + _EAGLE2_READS,
        eagle_draft(10),
        6,
    ),
    # EAGLE-2's tree on transformers' own layer with a static cache; suffix automaton on the host
    "SAMD[EAGLE2]": Method(
        Pass((60,), LAYER + 2),
        TREE_GLUE + _EAGLE2_TREE,
        TREE_READS + 2 + _EAGLE2_READS,
        eagle_draft(10),
        6,
    ),
    # template 2.2.2: 80 nodes, filled level by level from a table of successors
    "Recycling": Method(Pass((81,), RECYCLING_LAYER), 80, TREE_READS),
    # what a data store returns: from one guessed token to 64; suffixes of 16 tokens and fewer are
    # looked up until one is found
    "REST": Method(Pass((2, 16, 32, 48, 64), TREE_LAYER), TREE_GLUE, TREE_READS + 9),
    # (window + guesses) x (level - 1) = (7 + 7) x 4 tokens and the root; n-gram pool on the host
    "Lookahead": Method(Pass((57,), LAYER + 6), launches=120, reads=10),
}

SPS_DRAFT_LAYER = LAYER
SPS_ROUND_LAUNCHES, SPS_ROUND_READS = 310, 4
"""Assisted generation: a whole `generate` call of the draft model is set up in every round."""


@cache
def assisted_draft_length(tokens_per_round: float, longest: int = 60) -> float:
    """Mean drafted tokens of `transformers`' heuristic schedule, from its tokens per round.

    The schedule (generation/candidate_generator.py) drafts two more after a round that was
    accepted whole, one less otherwise, never less than one: a Markov chain over lengths. With one
    acceptance everywhere, the tokens per round of its stationary law give that acceptance.

    Args:
        tokens_per_round: bonus included.
        longest: lengths beyond it are cut off.
    """
    low, high = 0.01, 0.97
    length = 1.0
    for _ in range(30):
        alpha = (low + high) / 2.0
        tokens, length = _schedule(alpha, longest)
        if tokens < tokens_per_round:
            low = alpha
        else:
            high = alpha
    return length


def _schedule(alpha: float, longest: int) -> tuple[float, float]:
    """Stationary tokens per round and drafted tokens of the schedule."""
    lengths = np.arange(1, longest + 1)
    whole = alpha**lengths
    law = np.full(longest, 1.0 / longest)
    for _ in range(300):
        longer, shorter = law * whole, law * (1.0 - whole)
        law = np.append(shorter[1:], 0.0)
        law[0] += shorter[0]
        law[2:] += longer[:-2]
        law[-1] += longer[-2:].sum()
    tokens = (1.0 - alpha ** (lengths + 1)) / (1.0 - alpha)
    return float(law @ tokens), float(law @ lengths)
