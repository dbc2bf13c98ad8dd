"""Compiled rounds are timed beside the interpreter's, and price plans for what compiles them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.backends.registry import backend_capabilities  # noqa: E402
from specplan.cost_models.devices.measured.compiled import CompiledDevice  # noqa: E402
from specplan.cost_models.devices.measured.compiled_form import LEAST  # noqa: E402
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun  # noqa: E402
from specplan.cost_models.devices.measured.device import MeasuredDevice  # noqa: E402
from specplan.cost_models.devices.measured.table import MeasuredTable  # noqa: E402
from specplan.gathering import find, open_bench  # noqa: E402
from specplan.ir.errors import MissingCapabilityError, UsageError  # noqa: E402
from specplan.measure.device import compiled, coverage  # noqa: E402
from specplan.measure.device import time_probe as times  # noqa: E402
from specplan.measure.device.profile import measure_device  # noqa: E402
from specplan.planner import PLAIN, Problem, gather_facts, load_problem  # noqa: E402
from specplan.planner.search.backends import incomparable_backends  # noqa: E402
from specplan.progress import Progress, silent  # noqa: E402
from specplan.tuning import tune  # noqa: E402
from tests.benchmarks.fake_backend import Fake  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)
BY = "onnxruntime"
FORMS: dict[tuple[str, str], tuple[int, list[tuple[int, int]]]] = {
    ("autoregressive", ""): (1, []),
    ("lookup 2", ""): (3, []),
    ("lookup 2", "-unmatched"): (1, []),
    ("lookup 10", ""): (11, []),
    ("lookup 10", "-unmatched"): (1, []),
    ("lookups by match", "-matched"): (11, []),
    ("lookups by match", "-matched-1"): (3, []),
    ("lookups by match", "-unmatched"): (1, []),
    ("chain 1 by draft", ""): (2, [(1, 2)]),
    ("chain 3 by draft", ""): (4, [(1, 2), (2, 1)]),
    ("chain 7 by draft", ""): (8, [(1, 2), (6, 1)]),
    ("bush 8 by draft", ""): (17, [(1, 2), (1, 8)]),
}
"""Of the rounds that are timed: tokens that the target judges; passes and tokens of the draft."""
PROBES = [*dict.fromkeys(probe for probe, _ in FORMS)]


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    """Rounds run as graphs, eagerly, where a compiler would take its time; probes are short."""
    backend = Fake()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "EMITTED", 6)
        patch.setattr(compiled, "round_backend", lambda _: backend)
        yield backend


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory, fake: Fake) -> Problem:
    """Plain decoding and plans by a draft model."""
    path = write_problem(tmp_path_factory.mktemp("compiled"), prompts=4)
    methods = (PLAIN, "draft_model")
    return load_problem(path).model_copy(update={"backend": BY, "methods": methods})


@pytest.fixture(scope="module")
def measured(problem: Problem) -> MeasuredDevice:
    bench, facts = open_bench(problem)
    return measure_device(bench, facts, passes=1, compilers=(BY,))


def test_compiled_rounds_and_the_parts_they_are_priced_by(
    problem: Problem, measured: MeasuredDevice
) -> None:
    runs = measured.table.compiled[BY]
    assert [(run.batch, run.probe, run.form) for run in runs] == [(1, *one) for one in FORMS]
    _, facts = open_bench(problem)
    for run in runs:
        (judged,) = (one for one in run.passes if one.model == facts.target.digest)
        draft = facts.drafts["draft"].digest
        drafted = [(p.count, p.tokens) for p in run.passes if p.model == draft]
        tokens, passes = FORMS[run.probe, run.form]
        assert (judged.count, judged.tokens) == (1, tokens)
        assert sorted(drafted) == sorted(passes), "of all tokens that may be pending"
        assert all(one.single > 0.0 for one in run.passes)
        assert run.seconds > 0.0 < run.others and run.prompts > 0.0 and run.version == ""
        assert (0.0 < run.moves < run.others) == (run.probe[:4] == "bush"), "a chain stays in place"
        assert (0.0 < run.sources < run.others) == (run.probe[:6] == "lookup"), "matched or not"
        assert 40 <= run.context <= 63, "halfway between the shortest and the longest text"
    assert measured.table.provenance.backend == "eager"


def test_what_was_timed_is_not_compiled_again(
    problem: Problem, measured: MeasuredDevice, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(fake, "write", never)
    bench, facts = open_bench(problem)
    again = measure_device(bench, facts, passes=1, compilers=(BY,))
    assert again.table.compiled == measured.table.compiled


def test_plans_are_priced_as_they_run_compiled(problem: Problem, measured: MeasuredDevice) -> None:
    """Of a device file too; without rounds of the backend, by the interpreter's times."""
    (path,) = (problem.profiles / "device").glob("*.json")
    asked = problem.model_copy(update={"device": str(path)})
    by_backend = {}
    for backend in (BY, "inductor", "eager"):
        one = asked.model_copy(update={"backend": backend})
        by_backend[backend] = gather_facts(one, capabilities=backend_capabilities(backend))
    device = by_backend[BY].device
    assert isinstance(device, CompiledDevice)
    assert isinstance(by_backend["inductor"].device, MeasuredDevice)
    (refused,) = incomparable_backends(by_backend).items()
    assert refused[0] == "inductor" and "was not measured on this device" in str(refused[1])
    assert incomparable_backends({name: by_backend[name] for name in ("inductor", "eager")}) == {}
    _, facts = open_bench(problem)
    shape = facts.target
    form = device.form
    single, now, then = (
        measured.forward_seconds(shape, 1, tokens, context).median
        for tokens, context in ((1, form.context), (4, 40), (4, form.context))
    )
    expected = form.pass_seconds(single, 4, (shape.digest, shape.dtype)) + now - then
    assert device.forward_seconds(shape, 1, 4, 40).median == pytest.approx(
        max(expected, LEAST * single)
    )


def test_one_round_that_does_not_compile_costs_no_other(
    problem: Problem, measured: MeasuredDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends a measurement: what was compiled and timed before is not done again."""
    table, path = measured.table, tmp_path / "device.json"
    before = table.compiled.pop(BY)
    calls, write = list[int](), Fake.write

    def failing(self: Fake, *others: Any) -> None:
        calls.append(len(calls) + 1)
        if len(calls) in (3, 13):
            raise RuntimeError("no such kernel\nmore")
        write(self, *others)

    monkeypatch.setattr(Fake, "write", failing)
    monkeypatch.setattr(compiled, "TURNS", 2)
    bench, facts = open_bench(problem)
    cells, steps = coverage.cells(facts, (), ()), list[int]()

    def measure(progress: Progress = silent) -> tuple[CompiledRun, ...]:
        compiled.time_compiled(bench, facts, table, path, (BY,), cells, progress)
        return MeasuredTable.load(path).compiled[BY]

    def interrupt(_: str, done: int, __: int) -> None:
        if done == len(PROBES) + 1:  # all are compiled, and ran one turn
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(interrupt)
    (log,) = tmp_path.glob("*/turns.json")
    assert len(calls) == len(FORMS) and len(json.loads(log.read_text())["turns"]) == 1
    with pytest.raises(MissingCapabilityError) as caught:
        measure(lambda _, done, __: steps.append(done))
    assert len(calls) == 13 and steps == [*range(8), 9, 10], "the second turn alone is left"
    assert str(caught.value) == (
        "backend onnxruntime: it does not compile 1 of 8 rounds (lookup 2 at batch 1: RuntimeError:"
        " no such kernel). Mend that, or name another backend. The next measurement repeats only"
        " these rounds."
    )
    saved = MeasuredTable.load(path).compiled[BY]
    assert [(run.probe, run.form) for run in saved] == [
        one for one in FORMS if one[0] != "lookup 2"
    ]
    assert [*tmp_path.iterdir()] == [path], "all else is in the table"
    *first, last, unmatched = measure()
    assert first == [*saved] and last.probe == unmatched.probe == "lookup 2"
    assert len(calls) == 15, "of both forms"
    table.compiled[BY] = before


def test_the_only_backend_is_refused_before_anything_is_measured(
    problem: Problem, fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MissingCapabilityError("no kernels for these models", where="backend fake")

    monkeypatch.setattr(fake, "check", refuse)
    bench, facts = open_bench(problem.model_copy(update={"profiles": tmp_path}))
    with pytest.raises(MissingCapabilityError, match="no kernels"):
        measure_device(bench, facts, passes=1, compilers=(BY,))
    assert not [*tmp_path.rglob("*.json")]


def test_a_backend_that_does_not_compile_is_no_choice(
    problem: Problem,
    measured: MeasuredDevice,
    fake: Fake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its reason is told; without another backend it is the error."""
    monkeypatch.setattr(fake, "error", RuntimeError("no such kernel\nmore"))
    (stored,) = (problem.profiles / "device").glob("*.json")
    table = MeasuredTable.load(stored)
    assert table.compiled == measured.table.compiled
    table.compiled.clear()
    profiles = tmp_path / "profiles"
    table.save(profiles / "device" / stored.name)
    asked = problem.model_copy(update={"profiles": profiles})
    reason = "8 of 8 rounds .autoregressive at batch 1, .* and 5 more: RuntimeError: no such kern"
    with pytest.raises(MissingCapabilityError, match=reason):
        find(asked, silent)
    both = asked.model_copy(update={"backend": "eager", "backends": (BY, "eager")})
    searched = find(both, silent)
    assert searched.facts.problem.backend == "eager"
    assert "no such kernel" in searched.backends[0].refusal


def test_tuning_is_on_one_backend(problem: Problem) -> None:
    changed = {"backend": "eager", "backends": ("eager", BY)}
    with pytest.raises(UsageError, match="on one backend, and the problem names") as caught:
        tune(problem.model_copy(update=changed), minutes=1.0)
    assert caught.value.where == "backends"
