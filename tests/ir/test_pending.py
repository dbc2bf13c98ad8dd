"""Text that a pass may catch up: where a plan leaves it out, shapes tell, or it is refused."""

from __future__ import annotations

import re

import pytest

from specplan.ir import parse_plan, print_plan, verify_plan
from tests.ir.plans_on_disk import plan_of, text_of

STATED = (
    "autoregressive", "block_drafter", "contrastive", "draft_chain", "early_exit_verified",
    "expand_rerank", "fallback_rollback", "growing_tree", "heads", "jacobi_blocks",
    "judged_drafting", "layers_by_position", "prompt_lookup",
    "recurrent_heads", "schedule", "static_tree", "token_recycling",
)  # fmt: skip
"""Plans whose shapes tell what each cache lacks after a round."""
UNTOLD = {
    "staged": "forward draft",  # judged parts, adopted
    "merged_trees": "forward wide",  # two trees in turn, which are joined
    "self_draft_view": "cache=@part",  # a view, which no round commits
    "early_exit_confident": "layers=[8:32]",  # layers that a flag skips
}


def without(text: str) -> str:
    return re.sub(r" pending=\d+", "", text)


@pytest.mark.parametrize("name", STATED)
def test_what_shapes_tell_need_not_be_written(name: str) -> None:
    assert parse_plan(without(text_of(name))) == plan_of(name)


@pytest.mark.parametrize("name", UNTOLD)
def test_what_data_decides_is_asked_for(name: str) -> None:
    findings = verify_plan(parse_plan(without(text_of(name))))
    assert {one.rule for one in findings} == {"residency"}
    assert any(UNTOLD[name] in one.where and "give pending=" in one.what for one in findings)


def test_what_is_written_stays_and_what_is_stated_is_printed() -> None:
    text = text_of("draft_chain")
    more = text.replace("pending=2", "pending=3")
    assert print_plan(parse_plan(more)) == more
    assert print_plan(parse_plan(without(text))) == text


def test_drafted_nodes_that_are_read_again_count() -> None:
    text = without(text_of("draft_chain")).replace("cache draft", "cache draft rollback=replay")
    assert "cache=@dkv pending=5" in print_plan(parse_plan(text))


def test_ops_that_do_not_fit_are_left_to_the_verifier() -> None:
    plan = parse_plan(
        without(text_of("draft_chain")).replace("pick %t of=newest", "pick %q of=all")
    )
    assert [one.rule for one in verify_plan(plan)] == ["ssa"]
