"""Laws against the numbers of their papers, and against exact enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import sympy

from specplan.cost_models.formulas.formula import load_formulas
from tests.cost_models.chains import best_chain_length
from tests.cost_models.formulas.test_closed_forms import BEST, COSTS

GOODPUT: dict[str, Any] = {
    "target_context_seconds": 2e-8, "target_query_seconds": 0.12e-3,
    "target_step_seconds": 11e-3, "draft_context_seconds": 3e-9,
    "draft_query_seconds": 0.008e-3, "draft_step_seconds": 1.2e-3, "context": 512,
    "acceptance": 0.7,
}  # fmt: skip


def value(name: str, formula: str, **known: object) -> float:
    return float(load_formulas(name).value(formula, **known))


@pytest.mark.parametrize("alpha", BEST)
def test_best_lengths_of_leviathan(alpha: float) -> None:
    for cost, (length, speedup) in zip(COSTS, BEST[alpha], strict=True):
        known = {"acceptance": alpha, "draft_cost": cost}
        assert value("leviathan", "speedup", length=length, **known) == pytest.approx(
            speedup, abs=5.1e-5
        )
        others = [value("leviathan", "speedup", length=k, **known) for k in range(length + 20)]
        assert max(range(len(others)), key=others.__getitem__) == length
        assert best_chain_length(alpha, cost) == length


@pytest.mark.parametrize(
    ("alpha", "gamma", "operations", "speedup"),
    [(0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44), (0.8, 5, 1.63, 3.69),
     (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)],
)  # fmt: skip
def test_leviathan_table_1(alpha: float, gamma: int, operations: float, speedup: float) -> None:
    known = {"acceptance": alpha, "length": gamma, "draft_cost": 0.0, "draft_operations": 0.0}
    assert round(value("leviathan", "operations_factor", **known), 2) == operations
    assert round(value("leviathan", "speedup", **known), 2) == speedup


def test_leviathan_bigram_and_oracle() -> None:
    """A bigram model with alpha = 0.2: 1.25 times at no cost; the oracle bounds every length."""
    known = {"acceptance": 0.2, "length": 3, "draft_cost": 0.0}
    assert value("leviathan", "speedup", **known) == pytest.approx(1.248)
    assert value("leviathan", "oracle_tokens", acceptance=0.2) == 1.25
    assert value("leviathan", "least_speedup", acceptance=0.6, draft_cost=0.1) == pytest.approx(
        value("leviathan", "speedup", acceptance=0.6, draft_cost=0.1, length=1)
    )


def test_lenience() -> None:
    known = {
        "target_probabilities": (0.5, 0.3, 0.15, 0.05),
        "draft_probabilities": (0.25, 0.25, 0.4, 0.1),
    }
    for lenience, accepted in ((1.0, 0.7), (0.5, 0.9), (0.3, 1.0), (0.1, 1.0)):
        computed = value("lenience", "acceptance", **known, vocabulary=4, lenience=lenience)
        assert computed == pytest.approx(accepted)


def test_decoding_speculative_decoding() -> None:
    known = {"tokens": 3.0, "length": 5, "draft_seconds": 0.004, "verify_seconds": 0.040}
    name = "decoding_speculative_decoding"
    assert value(name, "decode_tokens_per_second_per_user", **known) == pytest.approx(50.0)
    wanted = {"tokens": 3.0, "length": 5, "verify_seconds": 0.042, "target_seconds": 0.040}
    assert value(name, "required_draft_seconds", wanted_speedup=1.5, **wanted) == pytest.approx(
        0.0076
    )
    plain = {"tokens": 1.0, "length": 0, "draft_seconds": 0.004, "verify_seconds": 0.040}
    assert value(name, "decode_tokens_per_second_per_user", **plain) == pytest.approx(1 / 0.040)


def test_sequoia_chains_and_specinfer_tree() -> None:
    known = {"first_acceptance": 0.6, "any_acceptance": 0.9}
    assert value("sequoia", "tokens_of_chains", depth=4, **known) == pytest.approx(2.9584)
    assert value("sequoia", "most_tokens_of_chains", **known) == pytest.approx(3.25)
    widths = (1, 1, 3, 1, 1, 1, 1, 1)
    p = (0.6, 0.2, 0.1)
    accepted = [sum(p[:width]) for width in widths]
    assert value("specinfer", "tokens", any_acceptances=accepted, depth=8) == pytest.approx(
        2.732209, abs=5e-7
    )
    assert value("specinfer", "nodes", widths=widths, depth=8) == 21
    assert value("specinfer", "tokens", any_acceptances=[0.6] * 8, depth=8) == pytest.approx(
        2.474806, abs=5e-7
    )


@pytest.mark.parametrize(
    ("batch", "best", "most", "plain"),
    [(1, 4, 168.594, 89.845), (8, 3, 1080.697, 664.346), (32, 2, 2710.178, 2109.749),
     (128, 1, 4787.539, 4625.828)],
)  # fmt: skip
def test_goodput(batch: int, best: int, most: float, plain: float) -> None:
    rates = [value("goodput", "goodput", batch=batch, length=k, **GOODPUT) for k in range(12)]
    assert max(range(12), key=rates.__getitem__) == best
    assert rates[best] == pytest.approx(most, abs=5e-4)
    assert rates[0] == pytest.approx(plain, abs=5e-4)
    if batch == 128:
        assert rates[3] == pytest.approx(4002.089, abs=5e-4)
    speedup = value("goodput", "speedup", batch=batch, length=best, **GOODPUT)
    assert speedup == pytest.approx(rates[best] / rates[0])


@pytest.mark.parametrize(
    ("slope", "fixed", "best"), [(0.5, 20, 48.496), (2, 22, 13.336), (5, 30, 7.274)]
)
def test_synergy(slope: float, fixed: float, best: float) -> None:
    known = {"power": 0.548, "slope_seconds": slope, "fixed_seconds": fixed}
    assert value("synergy", "best_length", **known) == pytest.approx(best, abs=5e-4)
    seconds = [
        value("synergy", "seconds_per_token", scale=0.9, length=best * by, **known)
        for by in (0.99, 1.0, 1.01)
    ]
    assert min(seconds) == seconds[1]


def test_synergys_best_length_is_where_the_derivative_vanishes() -> None:
    formulas = load_formulas("synergy")
    (length,) = (one.symbol for one in formulas.variables if one.name == "length")
    slope = sympy.diff(formulas.formula("seconds_per_token").expression, length)
    assert sympy.simplify(slope.subs(length, formulas.formula("best_length").expression)) == 0


@pytest.mark.parametrize(
    ("gamma", "draft", "verify", "tokens", "plain", "measured", "speedup"),
    [(7, 34.34, 28.50, 5.61, 25.96, 11.35, 2.29), (2, 8.83, 47.35, 2.17, 44.94, 26.55, 1.69)],
)  # fmt: skip
def test_magicdec_rows(
    gamma: int, draft: float, verify: float, tokens: float, plain: float, measured: float,
    speedup: float,
) -> None:  # fmt: skip
    """Llama-3.1-8B with itself, 100k tokens, batch 41; Llama-2-7B-32K with TinyLlama, 32k."""
    known = {"tokens": tokens, "length": gamma, "draft_seconds": draft / gamma / 1e3,
             "verify_seconds": verify / 1e3, "target_seconds": plain / 1e3,
             "glue_seconds": 1.35e-3}  # fmt: skip
    assert value("magicdec", "seconds_per_token", **known) == pytest.approx(
        measured / 1e3, rel=0.02
    )
    assert value("magicdec", "measured_speedup", **known) == pytest.approx(speedup, rel=0.02)


@pytest.mark.parametrize(
    ("context", "batch", "ratio", "speedup"),
    [(512, 1, 1.0012, 2.5643), (512, 32, 1.0233, 2.5160), (512, 64, 1.2870, 2.0543),
     (512, 128, 1.6394, 1.6497), (8192, 1, 1.0, 2.5649), (8192, 128, 1.0547, 2.4503)],
)  # fmt: skip
def test_magicdec_by_batch_and_context(
    context: int, batch: int, ratio: float, speedup: float
) -> None:
    """Llama-2-7B on an ideal A100, alpha = 0.8, gamma = 3, c = 0.05, against sums over its ops."""
    known = {
        "length": 3, "parameters": 6.6071e9, "weight_bytes": 13.214e9, "kv_bytes": 524288,
        "bandwidth": 2.039e12, "flops": 312e12, "step_seconds": 0.0, "batch": batch,
        "context": context,
    }  # fmt: skip
    computed = value("magicdec", "verify_ratio", **known)
    assert computed == pytest.approx(ratio, rel=0.025)
    tokens = value("leviathan", "tokens", acceptance=0.8, length=3)
    assert tokens / (3 * 0.05 + computed) == pytest.approx(speedup, rel=0.025)


def test_pearl() -> None:
    for alpha, gamma, tokens in ((0.8, 4, 2.12313), (0.5, 4, 1.30435), (0.9, 8, 3.8756),
                                 (0.7, 1, 1.0)):  # fmt: skip
        computed = value("pearl", "tokens", acceptance=alpha, length=gamma)
        assert computed == pytest.approx(tokens, abs=6e-6)
    assert value("pearl", "tokens", acceptance=1.0, length=4) == 4.0
    step = value("pearl", "step_seconds", length=5, draft_seconds=0.01, target_seconds=0.04)
    assert step == 0.05


@pytest.mark.parametrize(("alpha", "gamma"), [(0.8, 4), (0.5, 4), (0.9, 8), (0.6, 3)])
def test_pearls_tokens_from_its_two_states(alpha: float, gamma: int) -> None:
    """Stationary shares of the two states, and what each emits."""
    whole = alpha**gamma
    streak = alpha / (alpha + 1 - whole)  # share of steps that verify a window
    emitted = [(j + 1) * alpha**j * (1 - alpha) for j in range(gamma)]
    tokens = (1 - streak) * 1 + streak * (gamma * whole + sum(emitted))
    computed = value("pearl", "tokens", acceptance=alpha, length=gamma)
    assert computed == pytest.approx(tokens, rel=1e-12)


def test_lookahead() -> None:
    for alpha, gamma, guesses, tokens in ((0.5, 4, 1, 1.9375), (0.5, 4, 15, 4.47186),
                                          (0.3, 6, 7, 2.65257)):  # fmt: skip
        known = {"acceptance": alpha, "length": gamma, "guesses": guesses}
        assert value("lookahead", "tokens", **known) == pytest.approx(tokens, abs=6e-6)
    golden = {1: 1.2302, 5: 1.66, 10: 1.8667, 15: 1.9786, 30: 2.1387, 60: 2.2412, 120: 2.2818}
    for guesses, compression in golden.items():
        known = {"acceptance": 0.425, "length": 4, "guesses": guesses, "steps_per_hit": 3.106}
        assert value("lookahead", "compression", **known) == pytest.approx(compression, abs=6e-5)
    assert value("lookahead", "tokens", acceptance=1.0, length=4, guesses=1) == 5.0
    assert value("lookahead", "tokens", acceptance=0.9, length=4, guesses=0) == 1.0
    assert value("lookahead", "step_width", window=15, guesses=15, ngram=5) == 120


def test_optimal_stopping() -> None:
    """SpecDec++: the threshold on the probability of a rejection stops at the best length."""
    hazards = (0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
    known = {"hazards": hazards, "draft_seconds": 0.02, "target_seconds": 0.11}
    name = "specdec_plus_plus"
    seconds = [value(name, "seconds_per_token", length=k, **known) for k in range(11)]
    best = min(range(11), key=seconds.__getitem__)
    assert best == 4 and seconds[4] == pytest.approx(0.0461933, abs=5e-8)
    threshold = value(name, "threshold", draft_seconds=0.02, seconds_per_token=seconds[4])
    assert threshold == pytest.approx(0.567037, abs=5e-7)
    reached, drafted = 1.0, 0
    while 1.0 - reached * hazards[drafted] < threshold:
        reached *= hazards[drafted]
        drafted += 1
    assert drafted == best
    paper = value(
        name, "paper_threshold", draft_seconds=1.0, target_seconds=5.0, progress_seconds=1.0
    )
    assert paper == pytest.approx(6 / 7)


def test_opt_tree_expected_tokens_and_worth() -> None:
    """q = (0.6, 0.3, 0.1) everywhere: what the best n nodes add falls, and stops at delta."""
    hazards = (0.6, 0.3, 0.1)
    paths = [p for d in range(1, 9) for p in product(range(3), repeat=d)]
    values = sorted((float(sympy.prod(hazards[r] for r in p)) for p in paths), reverse=True)
    golden = {1: 0.6, 2: 0.96, 3: 1.26, 4: 1.476, 6: 1.836, 8: 2.0736}
    for nodes, accepted in golden.items():
        assert sum(values[:nodes]) == pytest.approx(accepted)
    by_depth = []
    for depth in range(1, 5):
        inside = sorted(
            (float(sympy.prod(hazards[r] for r in p)) for p in paths if len(p) <= depth),
            reverse=True,
        )
        by_depth.append(sum(inside[:8]))
    assert by_depth == pytest.approx([1.0, 1.87, 2.052, 2.0736])
    assert value("opt_tree", "worth_seconds", gain=0.182, seconds_per_token=0.01) == pytest.approx(
        0.00182
    )
    assert value(
        "dynamic_depth", "worth_seconds", beam_value=0.5, gain=0.364, seconds_per_token=0.01
    ) == pytest.approx(0.00182)


def test_layerskip_and_kangaroo() -> None:
    known = {"acceptance": 0.8, "length": 6, "exit_layer": 8, "layers": 32}
    assert value("layerskip", "speedup", **known) == pytest.approx(1.58057, abs=6e-6)
    assert value("layerskip", "round_layers", **known) == 32 + 6 * 8
    free = value("layerskip", "speedup_with_head", head_layers=0.0, **known)
    assert free == pytest.approx(value("layerskip", "speedup", **known))
    assert value("layerskip", "speedup_with_head", head_layers=1.0, **known) < free
    kangaroo = {"length": 6, "exit_layer": 2, "layers": 32, "head_layers": 0.0}
    assert value("kangaroo", "round_layers", **kangaroo) == 6 * 3 + 30


def test_draft_and_verify_updates() -> None:
    known = {"threshold": 0.6, "rate": 0.9, "drafted": 4, "most": 12}
    for matched, threshold, rate in ((2, 0.601, 0.7), (4, 0.599, 0.95)):
        now = {**known, "matched": matched}
        assert value("draft_and_verify", "new_threshold", **now) == pytest.approx(threshold)
        assert value("draft_and_verify", "new_rate", **now) == pytest.approx(rate)
    whole = {**known, "drafted": 12, "matched": 12}
    assert value("draft_and_verify", "new_threshold", **whole) == pytest.approx(0.6)


def test_mixture_of_experts() -> None:
    mixtral = {"experts": 8, "active": 2}
    for queries, distinct in ((1, 2), (2, 3.5), (4, 5.4688), (8, 7.1991), (16, 7.9198)):
        computed = value("mixture_of_experts", "distinct_experts", queries=queries, **mixtral)
        assert computed == pytest.approx(distinct, abs=5.1e-5)
    for queries, distinct in ((8, 57.421), (64, 222.442)):
        computed = value(
            "mixture_of_experts", "distinct_experts", experts=256, active=8, queries=queries
        )
        assert computed == pytest.approx(distinct, abs=5.1e-4)


def test_loaded_server_obeys_littles_law() -> None:
    known = {"idle_seconds": 2.0, "slope_seconds": 0.1, "load": 4.0}
    seconds = value("loaded_server", "seconds", **known)
    in_flight = value("loaded_server", "in_flight", **known)
    assert in_flight == pytest.approx(4.0 * seconds)
    assert seconds == pytest.approx(2.0 + 0.1 * in_flight)
    assert value("loaded_server", "most_load", slope_seconds=0.1) == pytest.approx(10.0)


def test_contrastive() -> None:
    known = {"acceptance": 0.8, "length": 4, "draft_cost": 0.1}
    assert value("contrastive", "speedup", **known) == pytest.approx(2.332889, abs=5e-7)


def test_medusa_thresholds() -> None:
    rows = (
        ((0.97, 0.01, 0.01, 0.01), 0.167661, 0.09, (0,)),
        ((0.25,) * 4, 1.386254, 0.075003, (0, 1, 2, 3)),
        ((0.5, 0.3, 0.15, 0.05), 1.14208, 0.09, (0, 1, 2)),
    )
    for probabilities, entropy, threshold, accepted in rows:
        known = {"target_probabilities": probabilities, "vocabulary": 4}
        assert value("medusa", "entropy", **known) == pytest.approx(entropy, abs=5e-6)
        computed = value("medusa", "threshold", floor=0.09, scale=0.3, **known)
        assert computed == pytest.approx(threshold, abs=5e-7)
        assert tuple(i for i, p in enumerate(probabilities) if p > computed) == accepted


def test_early_exits_and_jacobi() -> None:
    known = {"layers": 32, "exit_layer": 8, "exit_share": 0.5}
    assert value("early_exit", "layers_per_token", **known) == 20.0
    assert value("early_exit", "speedup", **known) == pytest.approx(1.6)
    assert value("jacobi", "speedup", block=1, iterations=1, verify_ratio=1.0) == 1.0
    worst = value("jacobi", "speedup", block=16, iterations=16, verify_ratio=1.25)
    assert worst == value("jacobi", "least_speedup", verify_ratio=1.25) == 0.8


def test_draft_latency_of_decoding_speculative_decoding() -> None:
    """1.5 times as fast with t_v = 42 ms and t_t = 40 ms needs draft steps of at most 7.6 ms."""
    known = {"tokens": 3.0, "length": 5, "verify_seconds": 0.042, "target_seconds": 0.040}
    law = "decoding_speculative_decoding"
    needed = value(law, "required_draft_seconds", wanted_speedup=1.5, **known)
    assert needed == pytest.approx(0.0076)
    assert value(law, "speedup", draft_seconds=needed, **known) == pytest.approx(1.5)


def test_batch_at_which_speculation_stops_paying() -> None:
    """SmartSpec's example: three tokens are a slowdown at batch 128, one token is not."""
    one, three = (value("goodput", "speedup", batch=128, length=k, **GOODPUT) for k in (1, 3))
    assert one > 1.0 > three
    assert value("goodput", "speedup", batch=1, length=3, **GOODPUT) > 1.0


def test_context_above_which_speculation_pays() -> None:
    """MagicDec: with a large batch it pays from some context on, and more with ever more."""
    model = {
        "tokens": 2.2, "length": 2, "parameters": 6.6e9, "weight_bytes": 13.2e9,
        "kv_bytes": 524288, "draft_weight_bytes": 2.2e9, "draft_kv_bytes": 45056,
        "draft_budget": 256, "bandwidth": 1.7e12, "flops": 2.2e14, "step_seconds": 1e-3,
        "draft_step_seconds": 1e-3, "glue_seconds": 1e-3, "batch": 256,
    }  # fmt: skip
    balance = value("magicdec", "balance_context", **model)
    assert value("magicdec", "speedup", context=100, **model) < 1.0
    assert value("magicdec", "speedup", context=balance, **model) > 1.0
    assert value("magicdec", "speedup", context=10**9, **model) == pytest.approx(2.2, rel=1e-3)


def test_load_at_which_a_busier_plan_stops_paying() -> None:
    """Shorter alone, but slower by every further request: they meet at load 2."""
    known = {"idle_seconds": 2.0, "slope_seconds": 0.3, "plain_idle_seconds": 3.0,
             "plain_slope_seconds": 0.2}  # fmt: skip
    gains = [value("loaded_server", "speedup", load=load, **known) for load in (1.9, 2.0, 2.1)]
    assert gains[0] > 1.0 == pytest.approx(gains[1]) and gains[2] < 1.0
