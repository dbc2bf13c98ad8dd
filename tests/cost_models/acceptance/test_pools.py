"""Pools: what one position's places say of every tree, rounds and lags by hand, stored profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.drafters import Beam
from specplan.cost_models.acceptance.evidence.pools import Pools, pool_size
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError

KEY = AcceptanceKey(Beam("draft", 2))
DEEP = (0, 0, 1, 1, 2, 2, 5)
"""Three nodes in three layers: places 0, 1, 1; then 2, 2; then 5; the last one got no children."""
SHORT = (1, 0, 0, 3)
"""One node, first in pools of one and two layers, fourth in one of three; it got children."""
NONE = (1,)
TEXT = (DEEP, (0, 1, 2, 2), SHORT, NONE, NONE, SHORT, NONE)


def test_places_tell_the_lengths_of_every_tree() -> None:
    pools = Pools(3, ((DEEP, SHORT, NONE),))
    by_tree = {
        (1, 1): (1, 1, 0),
        (2, 1): (0, 1, 0),
        (2, 2): (1, 1, 0),
        (2, 3): (2, 1, 0),
        (3, 2): (1, 0, 0),
        (3, 3): (2, 0, 0),
        (3, 4): (2, 1, 0),
        (3, 6): (3, 1, 0),
    }
    for (layers, nodes), expected in by_tree.items():
        assert pools.lengths(layers, nodes) == (expected,), (layers, nodes)
    assert pools.whole == ((3, 1, 0),)
    assert [pool_size(2, layers) for layers in (1, 2, 3)] == [2, 6, 10]


def test_rounds_and_lags_by_hand() -> None:
    """Of three layers and all nodes: 3 accepted and a bonus, 0 and a bonus, 1 and a bonus."""
    profile = AcceptanceProfile(KEY, Pools(3, (TEXT,)))
    tree = profile.evidence.cut(3, 10).model
    assert profile.evidence.cut(3, 10).rows == ((3, 1, 1, 0, 0, 1, 0),)
    chain = range(-1, 2), (0, 0, 0)
    assert tree.rounds(*chain, len(TEXT)).mean == 3
    assert tree.accepted_at_least(*chain)[:3] == pytest.approx((2 / 3, 1 / 3, 1 / 3))
    assert tree.tokens_per_round(*chain).mean == pytest.approx(7 / 3)
    assert profile.evidence.lag_share(3, 10) == pytest.approx(1 / 3)  # after the whole depth only
    # one layer: rounds of 1, 1, 0, 0, 1 accepted tokens; every accepted one was never run
    one = AcceptanceProfile(KEY, Pools(3, ((DEEP, SHORT, SHORT, NONE, NONE, SHORT, NONE),)))
    assert one.evidence.lag_share(1, 2) == pytest.approx(3 / 4)
    # two layers: 2, 0, 0, then 1 accepted; that last node had been run
    assert one.evidence.lag_share(2, 6) == pytest.approx(1 / 4)


def test_a_node_left_out_of_the_beam_lags() -> None:
    """The path ends before the last layer, at a node that got no children."""
    left_out = (0, 1, 2, 2)
    pools = Pools(3, ((left_out, NONE, NONE),))
    assert pools.lengths(3, 10) == ((1, 0, 0),)
    assert pools.lag_share(3, 10) == pytest.approx(1 / 2)


def test_what_the_end_of_a_text_cuts_off_is_no_round() -> None:
    pools = Pools(2, ((NONE, (0, 0, 0)),))
    assert pools.lag_share(2, 6) == 0.0


def test_prompts_without_positions_are_left_out() -> None:
    pools = Pools(3, ((), TEXT, ()))
    assert pools.lengths(3, 10) == Pools(3, (TEXT,)).lengths(3, 10)


def test_a_profile_is_stored_and_read_back(tmp_path: Path) -> None:
    profile = AcceptanceProfile(KEY, Pools(3, (TEXT, (NONE,))), provenance={"seed": 1})
    profile.save(tmp_path / "pools.json")
    again = AcceptanceProfile.load(tmp_path / "pools.json")
    assert again == profile and again.evidence.kind == "pools"
    assert (again.positions, again.prompts) == (len(TEXT) + 1, 2)
    assert again.evidence.cut(2, 4).rows == profile.evidence.cut(2, 4).rows
    assert again.evidence.cut(2, 4) is again.evidence.cut(2, 4), "a tree is cut out once"
    assert "2 prompts" in again.source


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layers": 0}, "layers"),
        ({"layers": True}, "layers"),
        ({"rows": [["1 0"]]}, "no places"),
        ({"rows": [["2"]]}, "no places"),
        ({"rows": [["1 0 -1 2"]]}, "out of range"),
        ({"rows": [["1 0 0.5 2"]]}, "not a whole acceptance profile"),
        ({"rows": [[[1, 0]]]}, "not a whole acceptance profile"),
        ({"rows": [[]]}, "no measurement"),
        ({"nodes": 3}, "not a whole acceptance profile"),
    ],
)
def test_broken_pools_are_refused(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = tmp_path / "pools.json"
    AcceptanceProfile(KEY, Pools(3, (TEXT,))).save(path)
    document = json.loads(path.read_text())
    document["evidence"] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=says) as caught:
        AcceptanceProfile.load(path)
    assert caught.value.where == str(path) and caught.value.remedy
