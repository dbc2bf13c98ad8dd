"""Names of what drafts: written and read back, and what reads as no kind but a role."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.ir.blocks import Skips
from specplan.planner.proposer import Proposer

ROLES = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
LAYERS = st.sets(st.integers(0, 90), max_size=4)
PROPOSERS = st.one_of(
    st.builds(Proposer, ROLES),
    st.builds(lambda role, n: Proposer(role, layers=n), ROLES, st.integers(1, 200)),
    st.builds(lambda role, n: Proposer(role, beam=n), ROLES, st.integers(1, 64)),
    st.builds(
        lambda role, n, asked: Proposer(role, budget=n, retrieved=asked),
        ROLES,
        st.integers(1, 8192),
        st.booleans(),
    ),
    st.builds(lambda role, a, m: Proposer(role, skips=Skips.of(a, m)), ROLES, LAYERS, LAYERS),
)


@given(PROPOSERS)
def test_a_name_reads_as_what_it_was_written_for(proposer: Proposer) -> None:
    assert Proposer.read(proposer.name) == proposer


@given(PROPOSERS, st.from_regex(r"[a-z]{2,6}[0-9]{1,3}", fullmatch=True))
def test_a_way_tells_who_drafts_in_it(proposer: Proposer, way: str) -> None:
    if proposer.beam is None:
        assert Proposer.read(proposer.in_way(way).name).drafter == proposer


def test_names() -> None:
    assert Proposer.read("target@4") == Proposer("target", layers=4)
    assert Proposer.read("draft^4") == Proposer("draft", beam=4)
    assert Proposer.read("target-a3m4a9") == Proposer("target", skips=Skips.of([3, 9], [4]))
    assert Proposer.read("target~512") == Proposer("target", budget=512)
    assert Proposer.read("target~512r") == Proposer("target", budget=512, retrieved=True)
    assert Proposer.read("target-a3m4a9").is_part and Proposer.read("target@4").is_part
    assert Proposer.read("draft^4").is_derived and not Proposer.read("draft^4").is_part
    assert not Proposer.read("draft").is_derived


@pytest.mark.parametrize(
    "name",
    [
        "target",
        "target-",
        "target-m4a3",
        "Target-a1",
        "-a1",
        "target@0",
        "draft^0",
        "^2",
        "target~0",
        "target~r",
        "text",
    ],
)
def test_what_reads_as_no_other_kind_is_a_role(name: str) -> None:
    assert Proposer.read(name) == Proposer(name)
