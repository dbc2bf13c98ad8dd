"""What papers and repositories have wrong: the right value, and the mistake by name."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from statistics import fmean

import pytest

from specplan.cost_models.formulas.closed_forms import (
    expected_tokens,
    tree_value,
)
from specplan.cost_models.formulas.formula import list_formulas, load_formulas
from tests.cost_models.chains import best_chain_length, chain_speedup


def value(name: str, formula: str, **known: object) -> float:
    return float(load_formulas(name).value(formula, **known))


def test_every_mistake_says_what_is_right() -> None:
    mistakes = [(each.name, m) for each in list_formulas() for m in each.mistakes]
    assert len(mistakes) >= 20
    for _, mistake in mistakes:
        assert mistake.where and mistake.claim and mistake.right and mistake.claim != mistake.right


def test_dsd_script_is_off_by_one() -> None:
    """`analyze_output.py` counts without the target's own token; throughput needs it."""
    emitted = (3, 1, 4, 2)  # by round
    tokens = fmean(emitted)
    short = fmean(count - 1 for count in emitted)
    known = {"length": 3, "draft_seconds": 0.002, "verify_seconds": 0.034}
    rate = value(
        "decoding_speculative_decoding", "decode_tokens_per_second_per_user", tokens=tokens, **known
    )
    assert rate == pytest.approx(sum(emitted) / (len(emitted) * 0.040))
    wrong = value(
        "decoding_speculative_decoding", "decode_tokens_per_second_per_user", tokens=short, **known
    )
    assert wrong == pytest.approx(rate - 1 / 0.040)


def test_leviathans_lenience_exceeds_its_own_theorem() -> None:
    """Appendix: 2.5, 3.1, 3.6 and 5.0 at c = 0.015 are above the maximum of theorem 3.8."""
    quoted = {0.62: (2.5, 2.33), 0.71: (3.1, 2.94), 0.76: (3.6, 3.45), 0.84: (5.0, 4.79)}
    for alpha, (printed, most) in quoted.items():
        best = chain_speedup(alpha, best_chain_length(alpha, 0.015), 0.015)
        assert best == pytest.approx(most, abs=0.006) and best < printed


MEASURED = (  # Leviathan et al. 2022, table 2: gamma, alpha, c, formula, measured
    (7, 0.75, 0.02, 3.2, 3.4), (7, 0.80, 0.04, 3.3, 2.8), (7, 0.82, 0.11, 2.5, 1.7),
    (7, 0.62, 0.02, 2.3, 2.6), (5, 0.68, 0.04, 2.4, 2.4), (3, 0.71, 0.11, 2.0, 1.4),
    (5, 0.65, 0.02, 2.4, 3.1), (5, 0.73, 0.04, 2.6, 3.0), (3, 0.74, 0.11, 2.0, 2.2),
    (5, 0.53, 0.02, 1.9, 2.3), (3, 0.55, 0.04, 1.8, 2.2), (3, 0.56, 0.11, 1.6, 1.7),
)  # fmt: skip


def test_leviathans_formula_against_its_measurements() -> None:
    """17.7 % on average and +47 % at worst: the floor that a planner should beat."""
    errors = []
    for gamma, alpha, cost, printed, measured in MEASURED:
        predicted = value("leviathan", "speedup", acceptance=alpha, length=gamma, draft_cost=cost)
        assert predicted == pytest.approx(printed, abs=0.07)
        errors.append(predicted / measured - 1)
    assert fmean(map(abs, errors)) == pytest.approx(0.177, abs=0.001)
    assert max(errors, key=abs) == pytest.approx(0.47, abs=0.005)


def test_sequoia_charges_plain_decoding_a_draft() -> None:
    """`tree_search.py` takes levels x draft: 1 level, no speculation, pays for a draft step."""
    known = {"tokens": 1.0, "draft_cost": 0.3, "verify_ratio": 1.0}
    assert value("sequoia", "relative_speedup", depth=0, **known) == 1.0
    assert value("sequoia", "relative_speedup", depth=1, **known) == pytest.approx(1 / 1.3)


def test_sequoias_demo_tree_by_its_own_count_and_by_depth() -> None:
    """Demo: a chain of 4 nodes with the root, 4 levels; F = 2.2914317 and 4.8877739 per token.

    The repository charges 4 drafts of 0.3 for 3 levels below the root.
    """
    value_of_chain = tree_value((-1, 0, 1), (0, 0, 0), lambda depth, rank: 0.634183)
    assert value_of_chain == pytest.approx(2.2914317, abs=1e-5)
    assert (4 * 0.3 + 10) / value_of_chain == pytest.approx(4.8877739, rel=1e-5)
    known = {"tokens": value_of_chain, "draft_cost": 0.03, "verify_ratio": 1.0}
    right = value("sequoia", "relative_speedup", depth=3, **known)
    assert right == pytest.approx(value_of_chain / 1.09)
    repository = value("sequoia", "relative_speedup", depth=4, **known)
    assert repository == pytest.approx(2.0459211, rel=1e-5)


def test_opt_trees_threshold_scales_with_the_speedup() -> None:
    """A layer is worth drafting iff it saves more than it takes: delta = mu S, not mu."""
    hazards = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
    cost = 0.2
    speedups = [
        value("positions", "speedup", hazards=hazards, length=k, draft_cost=cost) for k in range(9)
    ]
    best = max(range(9), key=speedups.__getitem__)
    threshold = value("opt_tree", "least_gain", draft_cost=cost, best_speedup=speedups[best])
    gains = [math.prod(hazards[: k + 1]) for k in range(8)]

    def stops_at(least: float) -> int:
        return next(k for k, gain in enumerate(gains) if gain <= least)

    assert stops_at(threshold) == best < stops_at(cost)
    assert speedups[stops_at(cost)] < speedups[best]


def test_medusas_swapped_defaults() -> None:
    """Floor 0.3 and scale 0.09 give far lower thresholds than 0.09 and 0.3."""
    rows = (
        ((0.97, 0.01, 0.01, 0.01), 0.0761), ((0.25,) * 4, 0.0225), ((0.5, 0.3, 0.15, 0.05), 0.0287)
    )  # fmt: skip
    for probabilities, swapped in rows:
        known = {"target_probabilities": probabilities, "vocabulary": 4}
        assert value("medusa", "threshold", floor=0.3, scale=0.09, **known) == pytest.approx(
            swapped, abs=6e-5
        )
        assert value("medusa", "threshold", floor=0.09, scale=0.3, **known) > swapped


def test_layerskips_reuse_reads_no_fewer_weights() -> None:
    """gamma drafts through X layers and a whole verification read L + gamma X layers anyway."""
    known = {"acceptance": 0.8, "length": 6, "exit_layer": 8, "layers": 32}
    plain_self_speculation = value(
        "leviathan", "speedup", acceptance=0.8, length=6, draft_cost=8 / 32
    )
    assert value("layerskip", "speedup", **known) == pytest.approx(plain_self_speculation)


def test_pearl_is_not_always_better() -> None:
    """alpha = 0.6, c = 1/8: 1.5526 side by side at its best, 1.5825 in turns."""
    parallel = max(
        value("pearl", "speedup", acceptance=0.6, length=k, draft_cost=1 / 8) for k in range(1, 17)
    )
    in_turns = chain_speedup(0.6, best_chain_length(0.6, 1 / 8), 1 / 8)
    assert parallel == pytest.approx(1.5526, abs=6e-5) and in_turns == pytest.approx(
        1.5825, abs=6e-5
    )
    high = value("pearl", "speedup", acceptance=0.9, length=8, draft_cost=1 / 8)
    assert high > chain_speedup(0.9, best_chain_length(0.9, 1 / 8), 1 / 8)


def test_magicdec_without_glue_has_the_wrong_sign() -> None:
    """Llama-2-7B-32K with TinyLlama, 1024 tokens, batch 32: measured 0.95, by formula 1.02."""
    known = {"tokens": 2.19, "length": 2, "draft_seconds": 8.21e-3 / 2,
             "verify_seconds": 9.55e-3, "target_seconds": 8.27e-3}  # fmt: skip
    assert value("magicdec", "measured_speedup", glue_seconds=0.0, **known) > 1.0
    predicted = value("magicdec", "measured_speedup", glue_seconds=1.35e-3, **known)
    assert predicted == pytest.approx(0.95, abs=0.005)


def test_block_verification_does_not_reach_the_joint_bound() -> None:
    """Context-free p = (1/3, 2/3), q = (2/3, 1/3): 10/9 by token, 11/9 by block, bound 12/9."""
    p, q, gamma = (Fraction(1, 3), Fraction(2, 3)), (Fraction(2, 3), Fraction(1, 3)), 2
    block = Fraction(0)
    for path in product(range(2), repeat=gamma):
        weight, chance = Fraction(1), Fraction(1)
        for token in path:
            weight *= q[token]
            chance = min(chance * p[token] / q[token], Fraction(1))
            block += chance * math.prod((q[t] for t in path), start=Fraction(1))
    known = {"target_first": 1 / 3, "draft_first": 2 / 3, "length": gamma}
    assert value("block_verification", "token_accepted", **known) == pytest.approx(10 / 9)
    assert block == Fraction(11, 9)
    assert value("block_verification", "joint_bound", **known) == pytest.approx(12 / 9)


def test_calms_repository_scales_the_decay_too() -> None:
    known = {"base": 0.9, "temperature": 4.0, "most": 100.0}
    for place, paper, repository in (
        (0, 0.91, 0.9),
        (50, 0.823534, 0.82218),
        (100, 0.811832, 0.811648),
    ):
        threshold = value("calm", "threshold", position=place, **known)
        assert threshold == pytest.approx(paper, abs=5e-6)
        threshold = value("calm", "repository_threshold", position=place, **known)
        assert threshold == pytest.approx(repository, abs=5e-6)


def test_genz_caps_perfect_acceptance() -> None:
    """`llm_spec_decode.py` returns N at alpha = 1; the target adds one: N + 1."""
    for gamma in (1, 4, 7):
        assert expected_tokens(1.0, gamma) == gamma + 1
        assert value("positions", "tokens", hazards=[1.0] * gamma, length=gamma) == gamma + 1


def test_verifying_on_experts_is_not_free() -> None:
    """GenZ reads k experts whatever the tokens; Mixtral reads 3.6 times as much for 8 tokens."""
    mixtral = {"experts": 8, "active": 2}
    traffic = value("mixture_of_experts", "expert_traffic", queries=8, **mixtral)
    assert traffic == pytest.approx(3.6, abs=0.005)
    known = {**mixtral, "batch": 1, "length": 7, "tokens": 3.0, "draft_cost": 0.05}
    dense = value("mixture_of_experts", "speedup", expert_share=0.0, **known)
    sparse = value("mixture_of_experts", "speedup", expert_share=0.9, **known)
    assert dense == pytest.approx(3.0 / 1.35) and sparse < 1.0
