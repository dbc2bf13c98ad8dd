"""Replay of traces against plain loops, laws and exact counting; profiles as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafters import TEXT, Model
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.hazards import posterior
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.acceptance.trace_model import TraceModel
from specplan.cost_models.formulas.closed_forms import (
    accepted_at_least,
    expected_tokens,
    tree_value,
)
from specplan.ir.errors import UsageError
from tests.cost_models.small_trees import chain, expansion, independent_chains


def play(row: Sequence[int], parents: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """Accepted tokens of every whole round, by a plain loop."""
    child = {(p, r): i for i, (p, r) in enumerate(zip(parents, ranks, strict=True))}
    rounds, node, accepted = [], -1, 0
    for rank in row:
        if (node, rank) in child:
            node, accepted = child[node, rank], accepted + 1
        else:
            rounds.append(accepted)
            node, accepted = -1, 0
    return rounds


def profile(rows: Sequence[Sequence[int]]) -> AcceptanceProfile:
    return AcceptanceProfile(AcceptanceKey(Model("draft")), Ranks(tuple(map(tuple, rows))))


traces = st.lists(st.lists(st.integers(-1, 4), min_size=1, max_size=40), min_size=1, max_size=6)


@given(traces)
@settings(max_examples=150)
def test_replay_is_the_plain_loop(rows: list[list[int]]) -> None:
    for tree in (chain(3), expansion(3, 2, 1), independent_chains(3, 4)):
        replay = TraceModel(rows, lengths=False).outcome(*tree)
        for column, row in enumerate(rows):
            assert replay.ended[:, column].sum() == len(play(row, *tree))
        whole = [a for row in rows for a in play(row, *tree)]
        assert sum(replay.end_shares()) == pytest.approx(1.0) or not whole
        if len(whole) + sum(whole) == sum(map(len, rows)):
            # no round was cut off: the ratio estimator, exactly
            tokens = profile(rows).tokens_per_round(*tree)
            assert tokens.mean == pytest.approx(1 + np.mean(whole))
            assert tokens.low <= tokens.mean <= tokens.high


def test_where_rounds_end() -> None:
    tree = expansion(2, 1)  # nodes 0, 1 below the root, 2 below 0, 3 below 1
    measured = profile([[-1, 0, -1, 0, 0, -1, 1, 0]])
    # root, node 0, node 2, node 3 (its bonus beyond the trace)
    assert measured.end_shares(*tree) == (0.25, 0.25, 0.0, 0.25, 0.25)
    law = AcceptanceProfile.from_hazards([[0.6, 0.2]])
    assert law.end_shares(*tree) == pytest.approx((0.2, 0.24, 0.08, 0.36, 0.12))
    assert law.end_shares((), ()) == (1.0,)


def test_cut_off_rounds_count_for_what_was_seen() -> None:
    # one whole round of 2 accepted, then one cut off after 1 accepted
    shares = profile([[0, 0, -1, 0]]).accepted_at_least(*chain(3))
    assert shares[:3] == (1.0, 1.0, 0.0)
    # a round that ended its trace at a leaf is whole but for its bonus
    assert profile([[0, -1, 0, 0]]).accepted_at_least(*chain(2))[:2] == (1.0, 0.5)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_independent_ranks_converge_to_the_tree_value(seed: int) -> None:
    law = (0.55, 0.2, 0.1)
    rng = np.random.default_rng(seed)
    rows = rng.choice([0, 1, 2, -1], size=(150, 200), p=[*law, 1 - sum(law)]).tolist()
    for tree in (chain(5), expansion(1, 1, 3, 1, 1), expansion(3, 2, 1, 1)):
        tokens = profile(rows).tokens_per_round(*tree)
        expected = tree_value(*tree, lambda depth, rank: law[rank])
        assert tokens.mean == pytest.approx(expected, rel=0.04)
        assert tokens.high - tokens.low < 0.08 * expected


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_intervals_cover(seed: int) -> None:
    """90 % intervals over prompts that differ: loosely, at most 9 misses of 24."""
    rng = np.random.default_rng(seed)
    alphas = rng.beta(12, 5, size=400)
    truth = 1 / np.mean([1 / expected_tokens(a, 4) for a in alphas])  # tokens over rounds
    misses = 0
    for _ in range(24):
        chosen = rng.choice(alphas, size=30)
        rows = [np.where(rng.random(128) < a, 0, -1).tolist() for a in chosen]
        tokens = profile(rows).tokens_per_round(*chain(4))
        misses += not tokens.low <= truth <= tokens.high
    assert misses <= 9


def test_hazards_by_depth_and_rank() -> None:
    measured = profile([[0, 0, 1, -1, 0, -1], [1, -1]])
    assert measured.hazard_counts(1, 0) == (3, 8)
    assert measured.hazard_counts(1, 1) == (2, 8)
    assert measured.hazard_counts(2, 0) == (1, 5)  # positions after an accepted one
    assert measured.hazard_counts(9, 0) == (0, 0)
    assert measured.hazard(1, 0) == 3 / 8
    assert measured.hazard(2, 0) == pytest.approx((1 + 10 * 3 / 8) / (5 + 10))
    assert measured.hazard(50, 5) == 0.0
    interval = measured.hazard_interval(1, 0)
    assert interval.low < interval.mean == 3 / 8 < interval.high
    assert measured.positions == 8


def test_jeffreys_interval() -> None:
    """Beta(8.5, 2.5): 90 % equal-tailed, scipy.stats.beta.ppf."""
    stats = pytest.importorskip("scipy.stats")
    interval = AcceptanceProfile.from_hazards([[0.8]], trials=10).hazard_interval(1, 0)
    assert interval.low == pytest.approx(stats.beta.ppf(0.05, 8.5, 2.5))
    assert interval.high == pytest.approx(stats.beta.ppf(0.95, 8.5, 2.5))


def test_published_numbers_need_no_traces() -> None:
    scalar = AcceptanceProfile.from_hazards([[0.8]])
    assert scalar.tokens_per_round(*chain(5)).mean == pytest.approx(expected_tokens(0.8, 5))
    assert scalar.tokens_per_round(*chain(5)).low == scalar.tokens_per_round(*chain(5)).high
    positional = AcceptanceProfile.from_hazards([[0.6, 0.2, 0.1]])
    tree = expansion(1, 1, 3, 1, 1, 1, 1, 1)
    assert positional.tokens_per_round(*tree).mean == pytest.approx(2.732209, abs=5e-7)
    counted = AcceptanceProfile.from_hazards([[0.6, 0.2], [0.5]], trials=200)
    tokens = counted.tokens_per_round(*expansion(2, 2))
    assert tokens.low < tokens.mean < tokens.high
    assert tokens.mean == pytest.approx(1 + 0.8 + 0.8 * 0.5)
    assert counted.tokens_per_round((), ()).mean == 1.0
    fewer = AcceptanceProfile.from_hazards([[0.6, 0.2], [0.5]], trials=20)
    wide = fewer.tokens_per_round(*expansion(2, 2))
    assert wide.high - wide.low > tokens.high - tokens.low


def test_trials_by_depth_and_depths_beyond_the_measured() -> None:
    plain = AcceptanceProfile.from_hazards([[0.8], [0.6]], trials=(1000, 800))
    assert plain.hazard_counts(2, 0) == pytest.approx((480, 800))
    assert plain.hazard_counts(9, 0) == pytest.approx((480, 800))  # meant for all deeper ones
    measured = AcceptanceProfile.from_hazards([[0.8], [0.6]], trials=(1000, 800), measured_depth=2)
    assert measured.hazard_counts(2, 0) == pytest.approx((480, 800))
    assert measured.hazard_counts(3, 0) == (0, 0)  # nobody counted there
    assert measured.hazard_interval(3, 0) == posterior(6, 10)
    for depth, wider in ((2, False), (3, True), (6, True)):
        known, guessed = (p.tokens_per_round(*chain(depth)) for p in (plain, measured))
        assert known.mean == guessed.mean
        assert (guessed.high - guessed.low > 1.5 * (known.high - known.low)) == wider
    short = AcceptanceProfile.from_hazards([[0.8]], trials=1000, measured_depth=3)
    assert [short.hazard_counts(depth, 0)[1] for depth in (1, 3, 4)] == [1000, 1000, 0]


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_tables_of_hazards_are_summed_over_trees(rows: int, seed: int) -> None:
    """The arrays against the plain closed forms, node by node."""
    rng = np.random.default_rng(seed)
    table = [rng.dirichlet([2, 1, 1, 1])[:3].tolist() for _ in range(rows)]
    law = AcceptanceProfile.from_hazards(table, trials=50)
    for tree in (chain(6), expansion(4, 2, 1), independent_chains(3, 3)):
        assert law.tokens_per_round(*tree).mean == pytest.approx(tree_value(*tree, law.hazard))
        levels = accepted_at_least(*tree, law.hazard)
        assert law.accepted_at_least(*tree) == pytest.approx(levels)
        assert sum(law.end_shares(*tree)) == pytest.approx(1.0)


def test_source_lengths() -> None:
    source = AcceptanceProfile(
        AcceptanceKey(TEXT, how="given", match=(1, 3)),
        Lengths(((3, 2, 1, 0, 0, 5, 4, 3, 2, 1, 0),)),
    )
    # limit 2: rounds at 0 (2 accepted), 3 (0), 4 (0), 5 (2), 8 (2, trace ends with its bonus)
    assert source.tokens_per_round(*chain(2)).mean == pytest.approx(11 / 5)
    assert source.match == (1, 3)
    assert source.hazard_counts(1, 0) == (8, 11)
    assert source.hazard_counts(2, 0) == (6, 8)
    assert source.hazard(1, 1) == 0.0
    with pytest.raises(UsageError, match="ranks"):
        source.tokens_per_round(*expansion(2))
    cut = AcceptanceProfile(AcceptanceKey(TEXT), Lengths(((0, 2, 1),)))
    assert cut.accepted_at_least(*chain(2))[:2] == (0.5, 1.0 * 0.5)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 6))
@settings(max_examples=100)
def test_source_replay_is_the_plain_loop(row: list[int], limit: int) -> None:
    replay = TraceModel([row], lengths=True).outcome(*chain(limit))
    ends, start = [], 0
    while start + min(row[start], limit) < len(row):
        start += min(row[start], limit)
        ends.append(start)
        start += 1
        if start >= len(row):
            break
    assert np.flatnonzero(replay.ended[:, 0]).tolist() == ends


def test_rounds_of_a_request_and_of_a_batch() -> None:
    rows = [[0, -1] * 8, [-1] * 16]  # a chain of one: 8 rounds, and 16
    measured = profile(rows)
    assert measured.rounds(*chain(1), tokens=16).mean == 12
    assert measured.rounds(*chain(1), tokens=16, batch=2).mean == pytest.approx(0.25 * 8 + 12)
    assert measured.rounds(*chain(1), tokens=3).mean == 2.5  # the last round is cut
    assert measured.rounds((), (), tokens=5, batch=4).mean == 5
    longer = measured.rounds(*chain(1), tokens=32).mean
    assert 22 < longer < 25  # beyond the traces at the mean rate
    law = AcceptanceProfile.from_hazards([[0.8]], trials=100).rounds(*chain(4), tokens=128)
    assert law.low < law.mean < law.high
    assert law.mean == pytest.approx(128 / expected_tokens(0.8, 4), rel=0.03)


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "draft.json"
    key = AcceptanceKey(Model("draft"), "t" * 64, "d" * 64, "code", 0.8, 50, 0.9, "draw_distinct")
    for saved in (
        AcceptanceProfile(key, Ranks(((0, -1), (2,))), provenance={"date": "2026-11-21"}),
        AcceptanceProfile(AcceptanceKey(TEXT, match=(1, 3)), Lengths(((0, 2),))),
        AcceptanceProfile.from_hazards([[0.6, 0.2], [0.5]], trials=100),
        AcceptanceProfile.from_hazards([[0.6], [0.5]], trials=(100, 60.5), measured_depth=2),
    ):
        saved.save(path)
        assert AcceptanceProfile.load(path) == saved
    other = AcceptanceKey(Model("draft"), "t" * 64, "d" * 64, "prose", 0.0, 50, 0.9, "best")
    assert [text.split(":")[0] for text in key.differences(other)] == ["task", "temperature", "how"]


@pytest.mark.parametrize(
    "change",
    [{"kind": "x"}, {"schema_version": 9}, {"evidence": None}, {"key": {}}, {"extra": 1},
     {"provenance": 5}, {"provenance": None},
     {"evidence": {"kind": "guesses", "rows": [[1]]}}, {"evidence": {"rows": [[1]]}},
     {"evidence": {"kind": "ranks", "rows": [[-2]]}}, {"evidence": {"kind": "ranks", "rows": [[]]}},
     {"evidence": {"kind": "ranks", "rows": [[0.5]]}}, {"evidence": {"kind": "ranks", "rows": 5}},
     {"evidence": {"kind": "ranks", "rows": [[0]], "trials": 3}},
     {"evidence": {"kind": "hazards", "rows": [[0.9, 0.2]]}},
     {"evidence": {"kind": "hazards", "rows": [[0.9], [0.1, 0.2]]}},
     {"evidence": {"kind": "hazards", "rows": [[0.9]], "trials": -1}},
     {"evidence": {"kind": "hazards", "rows": [[0.9]], "trials": [5, 5]}},
     {"evidence": {"kind": "hazards", "rows": [[0.9]], "trials": [0]}},
     {"evidence": {"kind": "hazards", "rows": [[0.9]], "measured_depth": 0}},
     {"evidence": {"kind": "mixture", "members": [[2.0, 1.0]], "others": [], "trials": None}},
     {"evidence": {"kind": "pools", "layers": 0, "rows": [["1"]]}},
     {"evidence": {"kind": "pools", "layers": 1, "rows": [["1 a"]]}},
     {"evidence": {"kind": "interleaved", "longest": 2, "rows": [["1 3"]]}},
     {"evidence": {"kind": "rounds", "lengths": [[1]], "trips": [[1, 1]]}}],
)  # fmt: skip
def test_broken_profiles_are_usage_errors(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "p.json"
    profile([[0, -1]]).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UsageError) as caught:
        AcceptanceProfile.load(path)
    assert str(path) in str(caught.value)
