"""Chains by plain arithmetic, for comparison with published formulas."""

from __future__ import annotations

from specplan.cost_models.formulas.closed_forms import expected_tokens


def chain_speedup(alpha: float, gamma: int, draft_cost: float) -> float:
    """Speedup of a chain over plain decoding, verification as long as one target step.

    Source: Leviathan et al. 2022 (arXiv 2211.17192), theorem 3.8.

    Args:
        alpha: acceptance probability.
        gamma: drafted tokens.
        draft_cost: c, time of a draft step in target steps.
    """
    return expected_tokens(alpha, gamma) / (gamma * draft_cost + 1.0)


def best_chain_length(alpha: float, draft_cost: float) -> int:
    """The chain length of the largest `chain_speedup`, which is unimodal in the length."""
    length = 0
    while chain_speedup(alpha, length + 1, draft_cost) > chain_speedup(alpha, length, draft_cost):
        length += 1
    return length
