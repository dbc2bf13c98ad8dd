"""Drafters: what they are called in files, and by what rounds that ran are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.acceptance.drafter_texts import read_drafter
from specplan.cost_models.acceptance.drafters import (
    TEXT,
    Beam,
    Drafter,
    Drawn,
    Fallback,
    FirstLayers,
    Interleaved,
    Model,
    OwnRounds,
    SkipBlocks,
    SmallCache,
    Source,
    model_of,
    named_drafter,
    source_of,
)
from specplan.cost_models.acceptance.key import file_name
from specplan.cost_models.acceptance.old_profiles import drafter_of_old_name
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from specplan.ir.text.parser import parse_plan
from tests.ir.plans_on_disk import plan_of, text_of

ROLES = st.sampled_from(["target", "draft", "small_1"])
NUMBERS = st.integers(1, 4096)
LAYERS = st.lists(st.integers(0, 40), max_size=3)
DRAFTERS = st.one_of(
    st.builds(Model, ROLES),
    st.builds(named_drafter, st.sampled_from(["text", "ngram", "suffix", "mtp"])),
    st.builds(FirstLayers, ROLES, NUMBERS),
    st.builds(SmallCache, ROLES, NUMBERS, st.sampled_from(["recent", "retrieved", "observed"])),
    st.builds(
        lambda role, budget, heads: SmallCache(
            role, budget, "by_head", tuple(f"head.{layer}.{head}" for layer, head in heads)
        ),
        ROLES,
        NUMBERS,
        st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40),
    ),
    st.builds(Beam, ROLES, NUMBERS),
    st.builds(Drawn, ROLES),
    st.builds(Fallback, st.just("text"), ROLES),
    st.builds(Interleaved, ROLES, st.sampled_from(["text", "ngram"])),
    st.builds(OwnRounds, st.just("jacobi"), st.just("p0123456789abcdef"), st.tuples(ROLES)),
    st.builds(lambda role, a, m: SkipBlocks(role, Skips.of([*a, 1], m)), ROLES, LAYERS, LAYERS),
)


@given(DRAFTERS)
def test_a_drafter_is_read_as_it_is_written(drafter: Drafter) -> None:
    assert read_drafter(str(drafter)) == drafter
    assert len(file_name(drafter)) < 150
    assert set(file_name(drafter)) <= {*"abcdefghijklmnopqrstuvwxyz0123456789_-"}


def test_how_drafters_are_written() -> None:
    assert read_drafter("first_layers(target, 4)") == FirstLayers("target", 4)
    assert read_drafter("small_cache(target, 512, retrieved)") == SmallCache(
        "target", 512, "retrieved"
    )
    parts = SkipBlocks("target", Skips.of([3], [4]))
    assert read_drafter("skip_blocks(target, [mlp.4, attn.3])") == parts
    assert str(parts) == "skip_blocks(target, [attn.3, mlp.4])"
    assert read_drafter("text") == TEXT == Source("text") and read_drafter("mtp") == Model("mtp")
    assert file_name(parts) == "skip_blocks-target-attn-3-mlp-4"
    assert (model_of(parts), source_of(parts)) == ("target", None)
    assert source_of(Interleaved("draft", "ngram")) == "ngram"


@pytest.mark.parametrize(
    "text",
    [
        "", "target@4", "draft draft", "layers(target, 4)", "first_layers(target)",
        "first_layers(4, target)", "first_layers(target, 0)", "skip_blocks(target, [a3])",
        "skip_blocks(target, [])", "small_cache(target, 5, kept)", "beam(draft, true)",
        "interleaved(draft,", "beam(draft, 2) more",
    ],
)  # fmt: skip
def test_what_names_none_says_how_they_are_written(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no drafter; .*first_layers\(target, 4\)"):
        read_drafter(text)


def test_names_of_the_version_before() -> None:
    assert drafter_of_old_name("target@4") == FirstLayers("target", 4)
    assert drafter_of_old_name("draft^4") == Beam("draft", 4)
    assert drafter_of_old_name("target~512") == SmallCache("target", 512)
    assert drafter_of_old_name("target~512r") == SmallCache("target", 512, "retrieved")
    assert drafter_of_old_name("draft&text") == Interleaved("draft", "text")
    old = drafter_of_old_name("target-a3m4a9")
    assert old == SkipBlocks("target", Skips.of([3, 9], [4]))
    assert drafter_of_old_name("text") == TEXT and drafter_of_old_name("draft") == Model("draft")
    assert drafter_of_old_name("beam(draft, 4)") is None
    with pytest.raises(UsageError, match="belongs to no plan") as caught:
        drafter_of_old_name("target+jacobi8")
    assert "specplan profile acceptance" in caught.value.remedy


def test_rounds_are_known_by_what_they_run() -> None:
    plan = plan_of("draft_chain")
    rounds = OwnRounds.of(plan)
    assert rounds.models == ("draft",) and rounds.plan == plan.name
    models = tuple(replace(model, dtype="float16") for model in plan.models)
    other = replace(plan, name="other", models=models)
    assert OwnRounds.of(other) == replace(rounds, plan="other"), "weights and names do not count"
    for old, new in (("repeat 4", "repeat 5"), ("rule=token", "rule=typical")):
        text = text_of("draft_chain")
        assert old in text
        assert OwnRounds.of(parse_plan(text.replace(old, new))).key != rounds.key
