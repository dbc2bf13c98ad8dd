"""Judging, emitting and committing become one segment, and what is read of them stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.ir.ops import Accept, Commit, Emit, Segment
from specplan.ir.parser import parse_plan
from specplan.ir.printer import print_plan
from specplan.passes.fuse import fuse
from specplan.passes.pipeline import run_passes
from tests.passes.plans import PATHS, read, steps

FUSED = """\
  segment fuse=true {
    %a = accept %c target=%l rule=token by=%v
    %e = emit %a
    commit @kv %e
    commit @dkv %e
  }
}
"""


def test_the_end_of_a_round() -> None:
    text = print_plan(run_passes(read("draft_chain"), (fuse,)))
    assert text.endswith(FUSED)


def test_what_is_read_later_is_handed_out() -> None:
    plan = run_passes(read("jacobi_blocks"), (fuse,))
    (segment,) = (op for op in plan.rounds[0].ops if isinstance(op, Segment))
    assert segment.results == ("e",) and segment.body.yields == ("e_1",)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_same_steps_are_run(path: Path) -> None:
    plan = parse_plan(path.read_text())
    fused = run_passes(plan, (fuse,))
    for before, after in zip(plan.rounds, fused.rounds, strict=True):
        assert steps(plan, before) == steps(fused, after)
    for item in fused.rounds:
        for op in item.ops:
            if isinstance(op, Segment) and op.fuse:
                kinds = [type(inner) for inner in op.body.ops]
                assert kinds[:2] == [Accept, Emit] and set(kinds[2:]) <= {Commit}
    assert fuse(fused) is fused
