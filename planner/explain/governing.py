"""The law that governs a plan, with the plan's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specplan.cost_models.estimate import Estimate
from specplan.cost_models.intervals import Interval, Seconds
from specplan.ir.types.value_types import TreeType
from specplan.planner.explain.break_even import draft_steps
from specplan.planner.explain.numbers import interval_data, seconds_data
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import own_round


def governing_formula(
    candidate: Candidate, plain: Candidate, tree: TreeType | None, cells: Sequence[int]
) -> dict[str, Any]:
    """Which law says how fast a plan decodes, and the numbers it says it with.

    A chain that a draft model drafts step by step obeys Decoding Speculative Decoding's
    throughput, a tree Sequoia's; whatever drafts without a model, or nothing, the identity of a
    round's time.

    Args:
        candidate: the plan, with a price.
        plain: plain decoding, with a price.
        tree: what the plan judges; None when it drafts nothing.
        cells: the cells of the workload in which it runs.

    Returns:
        `law`, `formula`, and `by_cell`: per cell `batch`, `prompt_tokens`,
        `values` of the law's variables by name (numbers with their interval as a mapping) and the
        `speedup` while decoding.
    """
    law = "round_time"
    if tree is not None and draft_steps(candidate.estimates[0])[0]:
        law = "decoding_speculative_decoding" if tree.is_chain else "sequoia"
    pairs = [(candidate.estimates[place], plain.estimates[place]) for place in cells]
    return {
        "law": law,
        "formula": "speedup",
        "by_cell": [
            {
                "batch": estimate.batch,
                "prompt_tokens": estimate.prompt_tokens,
                "values": _values(law, estimate, base),
                "speedup": decode_gain(estimate, base),
            }
            for estimate, base in pairs
        ],
    }


def _values(law: str, estimate: Estimate, plain: Estimate) -> dict[str, Any]:
    """The law's variables by name."""
    whole, target = estimate.seconds_per_round, seconds_data(plain.seconds_per_round)
    tokens = interval_data(estimate.tokens_per_round)
    if law == "round_time":
        return {"tokens": tokens, "round_seconds": seconds_data(whole), "target_seconds": target}
    steps, drafting = draft_steps(estimate)
    return {
        "tokens": tokens,
        "depth" if law == "sequoia" else "length": steps,
        "draft_seconds": seconds_data(drafting * (1.0 / steps)),
        "verify_seconds": seconds_data(
            Seconds(
                whole.median - drafting.median,
                max(0.0, whole.low - drafting.low),
                max(0.0, whole.high - drafting.high),
            )
        ),
        "target_seconds": target,
    }


def decode_gain(estimate: Estimate, plain: Estimate) -> dict[str, float]:
    """Tokens per round over its time in plain rounds, errors shared with plain left out."""
    own = own_round(estimate, plain)
    tokens, target = estimate.tokens_per_round, plain.seconds_per_round.median
    return interval_data(
        Interval(
            tokens.mean * target / own.median,
            tokens.low * target / own.high,
            tokens.high * target / max(own.low, 1e-300),
        )
    )
