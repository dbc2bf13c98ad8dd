"""Trees of several drafters joined at the root: what is kept of each, and what is emitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.inductor.capabilities import CAPABILITIES as INDUCTOR
from specplan.backends.ops.graft import graft
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.keys import FIRST_KEY
from specplan.backends.ops.tensors.trees import extended
from specplan.backends.ops.tensors.values import Tree
from specplan.backends.static.executable import StaticExecutable
from specplan.ir.capabilities import refusals
from specplan.ir.meaning import Node
from specplan.ir.meaning import Tree as Meaning
from specplan.ir.ops import Graft
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import Value
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined, edited
from tests.backends.pairs import in_batches, load_pair, plainly, save_pair, save_shorter
from tests.backends.test_dynamic_trees import token_paths
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value

CHAIN = """  %r{i} = root
  %d{i} = repeat {length} (%t{i} = %r{i}) {{
    %f{i} = pick %t{i} of=newest
    %q{i} = forward {name} %f{i} cache=@{name}_kv pending={pending}
{draw}    %n{i} = grow %t{i} at=%f{i} logits=%q{i}{how}
    yield %n{i}
  }}
"""
TAIL = """  %l = forward target %c cache=@kv pending=1
{judge}  %e = emit %a
  commit @kv %e
  commit @draft_kv %e
  commit @other_kv %e
}}
"""


def joined_plan(
    lengths: tuple[int, int], *, same: str = "merge", greedy: bool = True, best: int | None = None
) -> Plan:
    """Chains of two models and four tokens of the text, joined; perhaps only the best of them."""
    head = "plan joined\nmodel target\nmodel draft\nmodel other\n"
    head += "" if greedy else "assume temperature=0.0..1.0\n"
    head += (
        "state @kv = cache target\nstate @draft_kv = cache draft\nstate @other_kv = cache other\n"
    )
    drawn = not greedy and best is None
    chains = "".join(
        CHAIN.format(
            i=i, name=name, length=length, pending=max(*lengths, 4) + 1,
            draw=f"    %u{i} = uniform 1 stream=s{i}\n" if drawn else "",
            how=f" how=draw by=%u{i}" if drawn else "",
        )
        for i, (name, length) in enumerate(zip(("draft", "other"), lengths, strict=True))
    )  # fmt: skip
    text = "  %r2 = root\n  %d2 = lookup @text %r2 at=%r2 match=[1, 3] length=4\n"
    grafted = f"  %{'c' if best is None else 'pool'} = graft %d0 %d1 %d2 same={same}\n"
    nodes = sum(lengths) + 4
    if best is not None:
        grafted += f"  %b = pick %pool of=all best={best}\n  %c = prune %pool to=%b\n"
        nodes = best
    judge = "  %a = accept %c target=%l\n"
    if not greedy:
        judge = f"  %v = uniform {nodes + 1} stream=accept\n"
        judge += "  %a = accept %c target=%l rule=recursive by=%v\n"
    return parse_plan(f"{head}round decode {{\n{chains}{text}{grafted}{TAIL.format(judge=judge)}")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    return _load(tmp_path_factory.mktemp("three"), 61, 0.3)


def _load(folder: Path, vocabulary: int, scale: float) -> dict[str, CausalModel]:
    save_pair(folder, vocabulary, scale=scale)
    save_shorter(folder, "other", 1)
    return {**load_pair(folder), "other": load_model(folder / "other", dtype="float64")}


def requests_of(temperature: float = 0.0) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * i + seed) % (5 + 3 * seed) for i in range(3 + 7 * seed)),
            max_new_tokens=10 + seed,
            stop_tokens=(40,),
            temperature=temperature,
            seed=seed,
        )
        for seed in range(4)
    ]


PLANS: dict[str, dict[str, Any]] = {
    "merged": {"lengths": (3, 3)},
    "kept apart": {"lengths": (3, 2), "same": "keep"},
    "the best of merged ones": {"lengths": (4, 2), "best": 6},
    "the best of those kept apart": {"lengths": (2, 3), "best": 7, "same": "keep"},
}


@pytest.mark.parametrize("name", PLANS)
def test_greedy_output_is_that_of_plain_decoding(name: str, three: dict[str, CausalModel]) -> None:
    requests = requests_of()
    expected = plainly(three, requests)
    for greedy in (True, False):
        plan = joined_plan(**PLANS[name], greedy=greedy)
        assert not verify_plan(plan) and not refusals(plan, CAPABILITIES)
        assert not refusals(plan, INDUCTOR)
        assert in_batches(plan, three, requests, 3) == expected, greedy


@pytest.mark.parametrize("name", ["merged", "kept apart", "the best of merged ones"])
def test_graphs_decode_as_the_interpreter_does(name: str, three: dict[str, CausalModel]) -> None:
    """A request that is sampled and one that is not."""
    requests = [requests_of(0.8)[1], requests_of(0.0)[2]]
    plan = joined_plan(**PLANS[name], greedy=False)
    expected = in_batches(plan, three, requests, 2)
    generation = generate(StaticExecutable(plan, three), requests).completions
    assert [item.tokens for item in generation] == expected


def test_what_any_drafter_knows_is_accepted(three: dict[str, CausalModel]) -> None:
    """A drafter that is always right, joined as the last one, emits whole chains every round."""
    request = Request(prompt_tokens=(3, 1, 4, 1, 5), max_new_tokens=40)
    models = {**three, "other": three["target"]}
    for same in ("merge", "keep"):
        plan = joined_plan((3, 3), same=same)
        rounds = generate(EagerBackend().compile(plan, models), [request]).rounds
        assert (rounds == 10) if same == "merge" else (rounds >= 10), same
        three_alone = generate(EagerBackend().compile(plan, three), [request]).rounds
        assert three_alone > rounds


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    return _load(tmp_path_factory.mktemp("small"), VOCABULARY, 0.15)


@pytest.mark.parametrize(("same", "seeds"), [("merge", 1000), ("keep", 500)])
def test_drawn_chains_have_the_targets_law(
    same: str, seeds: int, small: dict[str, CausalModel]
) -> None:
    """Five tokens: chains often begin alike, and go on in each other's stead."""
    plan = joined_plan((2, 2), same=same, greedy=False)
    assert p_value(plan, small, law_of_texts(small["target"]), seeds=seeds) > 1e-4


def _random_chain(chance: Random, batch: int, drawn: bool) -> Tree:
    one = torch.ones(batch, 1, dtype=torch.int64)
    tree, size = first_tree(one, one * FIRST_KEY, torch.float64), chance.randint(0, 4)
    lengths = torch.tensor([[chance.randint(0, size)] for _ in range(batch)])
    for place in range(size):
        tokens = torch.tensor([[chance.randrange(2)] for _ in range(batch)])
        own = torch.tensor([[-chance.random()] for _ in range(batch)], dtype=torch.float64)
        row = one * (place if drawn else -1)
        tree = extended(tree, one * place, tokens, place < lengths, own=own, probs_row=row)
    laws = (torch.rand(batch, size, 2, dtype=torch.float64),) if drawn and size else ()
    return replace(tree, probs=laws)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_merged_trees_hold_every_path_and_go_on_at_the_first(seed: int, drawn: bool) -> None:
    chance = Random(seed)
    batch = chance.randint(1, 3)
    chains = [_random_chain(chance, batch, drawn) for _ in range(chance.randint(1, 3))]
    names = tuple(map(Value, "abc"[: len(chains)]))
    op = Graft(results=(Value("c"),), trees=names, same="merge")
    merged = graft(op, chains, (), kind=TreeType(parents=None, chain=False))
    first = 0
    for tree in chains:  # nodes keep their order, and the laws that they were drawn from
        for node in range(1, tree.columns if drawn else 1):
            rows = merged.probs_row[:, first + node]
            assert merged.all_probs is not None and tree.all_probs is not None
            for request, law in enumerate(rows.tolist()):
                assert torch.equal(
                    merged.all_probs[request, law], tree.all_probs[request, node - 1]
                )
        first += tree.size
    for row in range(batch):
        separate = [path for tree in chains for path in token_paths(tree, row).values()]
        paths = token_paths(merged, row)
        assert set(paths.values()) == set(separate)
        assert len(paths) == len(separate if drawn else set(separate)), (
            "equal nodes that were not drawn"
        )
        firsts: dict[tuple[int, ...], int] = {(): 0}
        for node, path in paths.items():
            firsts.setdefault(path, node)
            assert int(merged.parents[row, node]) == firsts[path[:-1]]
            votes = [_chance(tree, row, path) for tree in chains]
            assert merged.scores is not None
            if firsts[path] == node:
                assert float(merged.scores[row, node].exp()) == pytest.approx(sum(votes))
        scope = {name: _defined(tree, row) for name, tree in zip(names, chains, strict=True)}
        (defined,) = op.run(scope, None)
        for node, path in paths.items():
            assert defined.path(node - 1) == (1, *path)
            assert defined.nodes[node - 1].parent == int(merged.parents[row, node]) - 1
            assert defined.score(node - 1) == pytest.approx(float(merged.scores[row, node]))
        assert len(defined.live_nodes) == len(paths)


def _defined(tree: Tree, row: int) -> Meaning:
    """A chain as the definition has it."""
    assert tree.own is not None
    nodes = (
        Node(
            int(tree.tokens[row, i]), i - 2, bool(tree.live[row, i]), float(tree.own[row, i]),
            "draw" if int(tree.probs_row[row, i]) >= 0 else "given",
        )
        for i in range(1, tree.columns)
    )  # fmt: skip
    return Meaning((1,), tuple(nodes))


def _chance(tree: Tree, row: int, path: tuple[int, ...]) -> float:
    """Probability of a path in one chain."""
    assert tree.scores is not None
    node_of = {tokens: node for node, tokens in token_paths(tree, row).items()}
    return float(tree.scores[row, node_of[path]].exp()) if path in node_of else 0.0


EDITS: dict[str, dict[str, str]] = {
    "one root": {"  %r1 = root\n": "", "(%t1 = %r1)": "(%t1 = %r0)"},
    "growth": {
        "  %l = forward target %c": "  %g = pick %c of=all nodes=[0]\n"
        "  %k = lookup @text %c at=%g length=3\n  %l = forward target %k",
        "accept %c": "accept %k"},
    "drafts below what was joined": {
        "  %l = forward target %c": "  %g = pick %c of=all best=1\n"
        "  %z = forward other %c cache=@other_kv pending=5\n"
        "  %k = grow %c at=%g logits=%z children=2\n  %l = forward target %k",
        "accept %c": "accept %k"},
    "known nodes of a merged tree": {
        "  %l = forward target %c": "  %x = prune %c to=%d0\n  %l = forward target %x",
        "accept %c": "accept %x"},
    "joined twice": {"graft %d0 %d1 %d2 same=merge": "graft %d0 %d1\n  %x = graft %c %d2",
        "forward target %c": "forward target %x", "accept %c": "accept %x"},
}  # fmt: skip
"""Of chains that are merged, ops that nobody's method puts together."""


@pytest.mark.parametrize("name", EDITS)
def test_other_compositions_decode_as_is_defined(name: str, three: dict[str, CausalModel]) -> None:
    text = edited(print_plan(joined_plan((2, 2))), EDITS[name])
    decodes_as_defined(text, three, requests_of()[:3])


def test_a_rule_of_one_law_judges_no_joined_draws() -> None:
    plan = parse_plan(
        "\n".join(
            line.replace("rule=recursive", "rule=k_seq")
            for line in _without_text(joined_plan((2, 2), greedy=False))
        )
    )
    assert any("joined" in str(item) or "has others" in str(item) for item in verify_plan(plan))


def _without_text(plan: Plan) -> list[str]:
    text = print_plan(plan).replace("%d0 %d1 %d2", "%d0 %d1").replace("uniform 9 ", "uniform 5 ")
    return [line for line in text.splitlines() if "%r2" not in line]
