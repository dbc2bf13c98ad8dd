"""Sets of blocks: their two written forms, and the rule about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from tests.plan_texts import drafted

PLAN = drafted(
    """
  %t0 = root
  %q = forward target %t0 cache=@kv pending=1 skip=[BLOCKS] write=scratch
  %c = grow %t0 at=%t0 logits=%q
""",
    draft=False,
)

LAYERS = st.lists(st.integers(0, 200), max_size=12)


@given(LAYERS, LAYERS)
def test_words_are_read_back(attentions: list[int], mlps: list[int]) -> None:
    skips = Skips.of(attentions, mlps)
    assert Skips.read(reversed(skips.words)) == skips
    assert len(skips) == len(set(attentions)) + len(set(mlps)) == len(skips.words)
    assert skips.height == max([*attentions, *mlps], default=-1) + 1


def test_forms() -> None:
    skips = Skips.of([9, 3], [3, 4])
    assert skips.words == ("attn.3", "mlp.3", "mlp.4", "attn.9")
    assert skips.short == "a3m3m4a9"
    assert not NO_SKIPS and NO_SKIPS.short == ""


@pytest.mark.parametrize("word", ["layer.3", "attn", "attn.-1", "attn.03", "mlp.x", "3"])
def test_words_that_name_no_block(word: str) -> None:
    with pytest.raises(ValueError, match="names no block; blocks are called"):
        Skips.read([word])


def test_the_verifier_refuses_other_words() -> None:
    good = parse_plan(PLAN.replace("BLOCKS", "attn.1, mlp.2"))
    assert verify_plan(good) == () and parse_plan(print_plan(good)) == good
    bad = parse_plan(PLAN.replace("BLOCKS", "attn.1, layer.2"))
    (finding,) = verify_plan(bad)
    assert finding.rule == "type" and '"layer.2" names no block' in finding.what
