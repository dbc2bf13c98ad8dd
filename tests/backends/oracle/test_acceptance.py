"""What a rule takes of a tree when only some of its nodes have logits."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.acceptance import judged
from specplan.backends.oracle.backend import OracleBackend
from specplan.ir.meaning import Logits, Node, Tree
from specplan.ir.ops import Accept
from specplan.ir.plan import walk_plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.value_types import ROOT
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from tests.backends.oracle.toys import Toy
from tests.backends.pairs import load_pair, save_pair

PLAN = parse_plan("""plan partly
model target
assume temperature=1.0
state @kv = cache target
round r {
  %t = root
  %t1 = place %t at=%t tokens=[0]
  %l = forward target %t1 cache=@kv pending=2
  %t2 = place %t1 at=%t tokens=[1]
  %f = pick %t1 of=newest
  %c = place %t2 at=%f tokens=[0]
  %u = uniform 4 stream=judge
  %a = accept %c target=%l rule=deterministic by=%u
  %e = emit %a
  commit @kv %e
}
""")
"""The root and its first child have logits; other nodes have none."""
TREE = Tree((2,), (Node(0, ROOT), Node(1, ROOT), Node(0, 0)))
GRID = 6
"""Tokens are equally likely, so that all bounds of numbers are thirds and halves."""


def test_what_follows_nodes_without_logits_keeps_the_targets_law() -> None:
    assert not verify_plan(PLAN)
    request = Request(prompt_tokens=(2,), max_new_tokens=4, temperature=1.0)
    session = OracleBackend().compile(PLAN, {"target": Toy(vocabulary=3)}).start([request])
    (world,) = session.worlds
    world.begin_round(session.types["r"])
    (op,) = (op for op in walk_plan(PLAN) if isinstance(op, Accept))
    even = torch.zeros(3, dtype=torch.float64)
    logits, counts = Logits({(2,): [even], (2, 0): [even]}), Counter[tuple[int, ...]]()
    for cells in product(range(GRID), repeat=4):
        numbers = [(cell + 0.5) / GRID for cell in cells]
        counts[judged(world, op, TREE, ROOT, logits, numbers).tokens] += 1
    chances = {text: Fraction(count, GRID**4) for text, count in counts.items()}
    third, ninth = Fraction(1, 3), Fraction(1, 9)
    assert chances == {(1,): third, (2,): third, (0, 0): ninth, (0, 1): ninth, (0, 2): ninth}


@pytest.mark.parametrize("seed", range(3))
def test_the_interpreter_reads_the_same_numbers(seed: int, tmp_path: Path) -> None:
    save_pair(tmp_path, 5)
    models = {"target": load_pair(tmp_path)["target"]}
    requests = [
        Request(prompt_tokens=(1, 4, 2), max_new_tokens=12, temperature=1.0, seed=10 * seed + row)
        for row in range(4)
    ]
    tokens = [
        [one.tokens for one in generate(backend().compile(PLAN, models), requests).completions]
        for backend in (OracleBackend, EagerBackend)
    ]
    assert tokens[0] == tokens[1]
