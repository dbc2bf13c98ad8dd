"""Rounds as graphs of tensors decode as the interpreter does: sources, buckets, truncation.

`test_every_plan.py` decodes every kind that makes a graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.static.buckets import Bucket, Sampling
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import flat_program
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.graph_capabilities import STATIC
from specplan.backends.static.interface import SLOTS_PLACE
from specplan.backends.static.packages import check_packages
from specplan.backends.static.session import Program
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.types.matching import NO_MATCH
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.dynamic_trees import dynamic_plan
from tests.backends.kinds import every_kind
from tests.backends.pairs import counting, in_batches, load_pair, plain, run, save_pair
from tests.backends.source_plans import source_plans
from tests.benchmarks.fake_backend import Fake
from tests.plan_texts import TWO_LENGTHS, drafted, judged


def requests_of(temperature: float, **settings: float) -> list[Request]:
    """Prompts of several lengths over a vocabulary of 61, some with stop tokens."""
    return [
        Request(
            prompt_tokens=tuple((7 * i * i + seed) % 61 for i in range(1 + 5 * seed)),
            max_new_tokens=8 + seed,
            temperature=temperature if seed != 3 else 0.0,
            stop_tokens=(11, 40) if seed % 2 else (),
            seed=seed,
            **settings,
        )
        for seed in range(5)
    ]


def decoded(
    plan: Plan,
    models: dict[str, CausalModel],
    requests: Sequence[Request],
    batch: int,
    buckets: Sequence[Bucket] = (),
) -> list[tuple[int, ...]]:
    return in_turn(StaticExecutable(plan, models, buckets=buckets), requests, batch)


def in_turn(
    executable: Executable, requests: Sequence[Request], batch: int
) -> list[tuple[int, ...]]:
    """Batch after batch: what a source learned of one serves the next."""
    groups = [requests[i : i + batch] for i in range(0, len(requests), batch)]
    return [item.tokens for group in groups for item in generate(executable, group).completions]


def graphs_of(folder: Path, temperature: float, per_family: int) -> Iterator[tuple[str, Plan]]:
    """Plans whose rounds one graph holds."""
    for name, plan in every_kind(folder, temperature, per_family):
        if not STATIC.refusals(plan):
            yield name, plan


def test_the_ways_of_drafting_make_graphs(tmp_path: Path) -> None:
    assert len(dict(graphs_of(tmp_path, 0.0, 1))) >= 6


def test_what_sources_learn_is_the_same(pair_folder: Path) -> None:
    """Of texts before a round and of judged rows after it, in batches that are filled up."""
    models, requests = load_pair(pair_folder), requests_of(0.8)[2:]
    for name, plan in source_plans(greedy=False).items():
        assert STATIC.refusals(plan) == (), name
        expected = in_turn(EagerBackend().compile(plan, models), requests, 2)
        assert decoded(plan, models, requests, 2, [Bucket(4, 64)]) == expected, name


LOOKED_UP = drafted(
    """
  %t0 = root
  %t1 = lookup @text %t0 at=%t0 match=[1, 3] length=3
  %c = lookup @text %t1 at=%t0 match=[1, 1] length=2
""",
    draft=False,
)


OR_DRAFTED = """  %t0 = root
  %m = lookup @text %t0 at=%t0 match=[1, 2] length=4
  %q0 = forward draft %t0 cache=@dkv pending=5
  %k = measure %m count
  %miss = compute "k < 1" k=%k
  %c = when %miss otherwise=[%m] {
    %u0 = uniform 1 stream=draft
    %d1 = grow %t0 at=%t0 logits=%q0 how=draw by=%u0
    %d4 = repeat 3 (%t = %d1) {
      %f = pick %t of=newest
      %q = forward draft %f cache=@dkv
      %u = uniform 1 stream=draft offset=1
      %n = grow %t at=%f logits=%q how=draw by=%u
      yield %n
    }
    yield %d4
  }"""


def test_a_round_gets_the_same_tensors_each_time(pair_folder: Path) -> None:
    """All but the slots attended to; caches again in the next batch: a runtime binds them once."""
    models, plan, (_, *requests) = load_pair(pair_folder), parse_plan(LOOKED_UP), requests_of(0.0)
    calls: list[tuple[Tensor, ...]] = []

    def watched(graph: RoundGraph, *_: Any) -> Program:
        def program(*tensors: Tensor) -> Tensor:
            calls.append(tensors)
            report: Tensor = graph(*tensors)
            return report

        return program

    size = len(requests)
    executable = StaticExecutable(plan, models, watched, buckets=[Bucket(size, 64)])
    expected = run(plan, models, requests)
    assert in_turn(executable, requests, size) == expected
    moved = {place for one in calls for place, now in enumerate(one) if now is not calls[0][place]}
    assert len(calls) > 3 and moved == {SLOTS_PLACE}
    assert in_turn(executable, requests[::-1], size) == expected[::-1]
    same = sum(now is before for now, before in zip(calls[-1], calls[0], strict=True))
    assert same == 2 * models["target"].num_layers + 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_lookup_that_proposes_nothing_leaves_the_root(
    pair_folder: Path, temperature: float
) -> None:
    """The same tokens, and both forms of the round run; where one is not there, the other does."""
    copy = "  %t0 = root\n  %c = lookup @text %t0 at=%t0 match=[1, 3] length=6"
    judge, head = judged("recursive", 6), "assume temperature=0.0..1.0\n"
    plan = parse_plan(drafted(copy, draft=False, judge=judge, head=head))
    models, requests = load_pair(pair_folder), requests_of(temperature)
    ran: Counter[int | None] = Counter()

    for batch in (1, 2):
        expected = in_turn(EagerBackend().compile(plan, models), requests, batch)
        assert in_turn(StaticExecutable(plan, models, counting(ran)), requests, batch) == expected
    assert set(ran) == {None, NO_MATCH}
    ran.clear()
    lacking = StaticExecutable(
        plan, models, counting(ran), has=lambda graph, _: graph.outcome is None
    )
    assert in_turn(lacking, requests, 2) == expected
    assert set(ran) == {None}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_model_behind_a_lookup_has_a_form_for_each_outcome(
    pair_folder: Path, temperature: float
) -> None:
    """The same tokens as the interpreter's; a batch of several outcomes runs the whole round."""
    judge, head = judged("token", 4), "assume temperature=0.0..1.0\n"
    plan = parse_plan(drafted(OR_DRAFTED, judge=judge, head=head))
    models, requests = load_pair(pair_folder), requests_of(temperature)
    ran: Counter[int | None] = Counter()
    for batch, forms in ((1, {0, NO_MATCH}), (2, {0, NO_MATCH, None})):
        expected = in_turn(EagerBackend().compile(plan, models), requests, batch)
        assert in_turn(StaticExecutable(plan, models, counting(ran)), requests, batch) == expected
        assert set(ran) == forms


def test_copies_of_two_lengths_have_a_form_for_each(pair_folder: Path) -> None:
    """A form's own lookup is where it reads it, whatever the other has.

    The same tokens where the forms run in turn, as rounds that are timed.
    """
    models, twice = load_pair(pair_folder), ((5, 9, 2, 33, 5, 9), (3, 20, 41, 8, 3, 20))
    repeating = [Request(prompt_tokens=one, max_new_tokens=12, temperature=0.0) for one in twice]
    requests = [*requests_of(0.0), *repeating]
    plan = parse_plan(drafted(TWO_LENGTHS, draft=False))
    ran: Counter[int | None] = Counter()
    for batch, whole in ((1, set[int | None]()), (2, {None})):
        expected = in_turn(EagerBackend().compile(plan, models), requests, batch)
        assert in_turn(StaticExecutable(plan, models, counting(ran)), requests, batch) == expected
        assert set(ran) == {0, 1, NO_MATCH} | whole
    timed, ops = StaticExecutable(plan, models, counting(ran)), list[str]()
    timed.in_turn = True
    ran.clear()
    for request, tokens in zip(requests, expected, strict=True):
        ops.clear()
        ran_alone = generate(timed, [request], observer=lambda op, *_: ops.append(op))
        assert [one.tokens for one in ran_alone.completions] == [tokens]
        names = [f"round-{one}" for one in ("matched", "matched-1", "unmatched") for _ in range(2)]
        rounds = [op for op in ops if op.startswith("round")]
        assert rounds == [*islice(cycle(names), len(rounds))]
    assert set(ran) == {0, 1, NO_MATCH}


LEARNING = """plan learning
model target
state @kv = cache target
state @adj = source adjacency(width=4) scope=request
state @runs = source phrases scope=request
round decode {{
  %t0 = root
  {first}%t = lookup @adj %t0 at=%t0 children=2 length=2
  %l = forward target %t cache=@kv pending=1
  %a = accept %t target=%l
  %e = emit %a
  commit @kv %e
  {last}
}}
"""


@pytest.mark.parametrize(
    ("first", "last", "reason"),
    [
        ("", "update @adj %t logits=%l", None),
        ("", "update @runs %t last=2", None),
        ("", "%g = relabel %t logits=%l\n  update @runs %g last=1", None),
        ("%m = forward target %t0 cache=@kv pending=1\n  update @adj %t0 logits=%m\n  ", "",
         "look up before"),
        ("", "%g = grow %t0 at=%t0 logits=%l\n  %n = lookup @adj %g at=%g",
         "the host cannot run it"),
        ("", "%x = repeat 2 (%s = %t0) {\n  %n = lookup @adj %t0 at=%t0\n  yield %n\n}",
         "the host cannot run it"),
    ],
)  # fmt: skip
def test_what_the_host_does_stands_around_the_call(
    first: str, last: str, reason: str | None
) -> None:
    refused = STATIC.refusals(parse_plan(LEARNING.format(first=first, last=last)))
    assert bool(refused) == (reason is not None)
    assert not refused or any(reason in one.reason for one in refused if reason), refused


def test_truncated_laws(pair_folder: Path, tmp_path: Path) -> None:
    models, requests = load_pair(pair_folder), requests_of(1.0, top_k=7, top_p=0.8)[2:5]
    for name, plan in graphs_of(tmp_path, 1.0, 1):
        expected = in_batches(plan, models, requests, 3)
        assert decoded(plan, models, requests, 3) == expected, name


@pytest.mark.parametrize("greedy", [True, False])
def test_trees_that_differ_by_request(pair_folder: Path, greedy: bool) -> None:
    models, requests = load_pair(pair_folder), requests_of(0.0 if greedy else 0.7)
    plan = dynamic_plan(3, 3, 8, greedy=greedy)
    expected = in_batches(plan, models, requests, 4)
    assert decoded(plan, models, requests, 4) == expected


def test_small_batches_are_filled_up(pair_folder: Path, tmp_path: Path) -> None:
    models, requests = load_pair(pair_folder), requests_of(0.0)[1:4]
    for name, plan in graphs_of(tmp_path, 0.0, 1):
        expected = in_batches(plan, models, requests, 3)
        assert decoded(plan, models, requests, 3, [Bucket(2, 64), Bucket(4, 64)]) == expected, name


def test_programs_have_room_for_all_stop_tokens(pair_folder: Path) -> None:
    """A program made for few of them would read only the first, or another row's."""
    models = {"target": load_pair(pair_folder)["target"]}
    unstopped = [replace(request, stop_tokens=()) for request in requests_of(0.0)[:2]]
    texts = run(plain(), models, unstopped)
    executable = StaticExecutable(plain(), models, flat_program, buckets=[Bucket(2, 64)])
    for count in (2, 6, 3):
        requests = [
            replace(request, stop_tokens=(text[5], *range(200, 199 + count)))
            for request, text in zip(unstopped, texts, strict=True)
        ]
        expected = run(plain(), models, requests)
        assert expected != texts
        assert [item.tokens for item in generate(executable, requests).completions] == expected


def test_what_nothing_compiles_runs_op_by_op_where_rounds_are_captured(pair_folder: Path) -> None:
    """It attends to as many slots as a capture would."""
    models, requests = load_pair(pair_folder), requests_of(0.7)
    plan = dynamic_plan(3, 3, 8, greedy=False)
    executable = StaticExecutable(plan, models, captured_on={"cpu"})
    assert [item.tokens for item in generate(executable, requests).completions] == run(
        plan, models, requests
    )


def test_models_beyond_the_plan_make_no_other_round(tmp_path: Path) -> None:
    """As where a bundle's plan drafts by lookup, and its problem has a draft model."""
    save_pair(tmp_path / "pair", layers=2)
    models, plan, bucket = load_pair(tmp_path / "pair"), plain(greedy=True), Bucket(1, 16)
    request = Request(prompt_tokens=(1, 2, 3), max_new_tokens=6)
    backend, out = Fake(), tmp_path / "out"
    alone = backend.compile(plan, {"target": models["target"]}, out, [bucket])
    expected = generate(alone, [request]).completions[0].tokens
    again = backend.compile(plan, models, out, [bucket], frozen=True)
    check_packages(backend, again, out, Sampling.named("greedy"), [bucket])
    assert generate(again, [request]).completions[0].tokens == expected
    assert len(backend.graphs) == 1 and len(models) == 2
