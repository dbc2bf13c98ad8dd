"""Comparisons: who runs, on what, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.backends.static.executable import StaticExecutable  # noqa: E402
from specplan.cost_models.forecast import Forecast  # noqa: E402
from specplan.cost_models.intervals import Interval, Seconds  # noqa: E402
from specplan.ir.errors import NothingToCompareError  # noqa: E402
from specplan.measure.bench.bench import STOCK, compare, missed_limits  # noqa: E402
from specplan.measure.bench.stock import stock_runners  # noqa: E402
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.measure.workbench import BENCH, PROFILE, Workbench  # noqa: E402
from specplan.planner import PLAIN, load_problem  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)
PLAIN_PLAN = plain_plan(greedy=True)
FORECAST = Forecast(
    batch=1,
    output_tokens=8,
    prefill=Seconds(0.04, 0.03, 0.05),
    seconds_per_round=Seconds(0.005, 0.004, 0.006),
    rounds=Interval.exact(8.0),
    prompts=0,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    path = write_problem(tmp_path_factory.mktemp("problem"), prompts=3, output_tokens=8)
    return Workbench(load_problem(path))


def test_all_contenders_say_the_same(bench: Workbench) -> None:
    plans = {PLAIN: (PLAIN_PLAN, FORECAST), "again": (PLAIN_PLAN, None)}
    graphs = StaticExecutable(PLAIN_PLAN, bench.models)
    result = compare(bench, plans, chosen="again", compiled=graphs, repeats=2)
    names = [line.name for line in result.lines]
    assert names[:4] == [PLAIN, "again", "again, compiled", STOCK] and len(names) == 6
    assert result.prompts == 3 and result.batch == 1
    assert set(result.outputs) == set(names) and len(result.outputs[PLAIN]) == 3
    for line in result.lines:
        assert line.differing == 0, line
        assert result.outputs[line.name] == result.outputs[PLAIN]
        assert line.tokens_per_second > 0 and line.low <= line.high
    plain = result.line(PLAIN)
    assert plain.against_baseline == 1.0 and plain.tokens_per_round == 1.0
    assert plain.error == pytest.approx(100.0 / plain.tokens_per_second - 1.0)
    assert plain.predicted is not None and plain.predicted.low < 100.0 < plain.predicted.high
    assert result.line("again").predicted is None


def test_forecasts_of_compiled_rounds_stand_beside_these(bench: Workbench) -> None:
    """A problem of a backend that compiles rounds is priced so; the interpreter runs the others."""
    problem = bench.problem.model_copy(update={"backend": "onnxruntime"})
    compiling = Workbench(problem)
    assert (compiling.runs_by, bench.runs_by) == ("eager", "eager")
    assert compiling.fingerprint("x") == bench.fingerprint("x")
    graphs = StaticExecutable(PLAIN_PLAN, compiling.models)
    plans = {PLAIN: (PLAIN_PLAN, FORECAST)}
    result = compare(compiling, plans, compiled=graphs, repeats=1, stock=False)
    assert result.line(PLAIN).predicted is None
    forecast = result.line(f"{PLAIN}, compiled").predicted
    assert forecast is not None and forecast.low < 100.0 < forecast.high


def test_batches_fill_with_prompts_of_their_own(bench: Workbench) -> None:
    result = compare(bench, {PLAIN: (PLAIN_PLAN, None)}, batch=3, repeats=1)
    assert [line.name for line in result.lines] == [PLAIN, STOCK]
    assert all(line.differing == 0 for line in result.lines)
    with pytest.raises(NothingToCompareError, match="do not fill a batch of 4"):
        compare(bench, {PLAIN: (PLAIN_PLAN, None)}, batch=4)
    with pytest.raises(NothingToCompareError, match="no autoregressive plan"):
        compare(bench, {"other": (PLAIN_PLAN, None)})


def test_prompts_of_the_two_splits_do_not_meet(bench: Workbench) -> None:
    profile = {prompt.tokens for prompt in bench.prompts(PROFILE)}
    assert not profile & {prompt.tokens for prompt in bench.prompts(BENCH)}


def test_files_without_splits_are_shared_out(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=2)
    text = (tmp_path / "prompts.jsonl").read_text()
    (tmp_path / "prompts.jsonl").write_text(text.replace('"split"', '"origin_split"'))
    open_bench = Workbench(load_problem(path))
    profile = [prompt.id for prompt in open_bench.prompts(PROFILE)]
    other = [prompt.id for prompt in open_bench.prompts(BENCH)]
    assert len(profile) == len(other) == 2 and not set(profile) & set(other)


def test_limits_that_are_missed_are_reported(bench: Workbench) -> None:
    result = compare(bench, {PLAIN: (PLAIN_PLAN, None)}, repeats=1, stock=False)
    line = result.line(result.chosen)
    assert line.ttft is not None and line.tpot is not None
    assert 0 < line.ttft < 60 and 0 < line.tpot < 60
    assert missed_limits(line, None, None) == []
    assert missed_limits(line, 60.0, 60.0) == []
    missed = missed_limits(line, 1e-9, 1e-9)
    assert [item.split(" ")[0] for item in missed] == ["limits.ttft", "limits.tpot"]
    assert line.request_seconds is not None and line.request_seconds >= line.ttft
    assert missed_limits(line, None, None, 2.0 * line.request_seconds) == []
    (whole,) = missed_limits(line, None, None, 0.5 * line.request_seconds)
    assert whole.startswith("limits.request_latency is ")


def test_stock_generation_runs_without_warnings(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    from transformers.utils import logging

    prompts = bench.prompts(BENCH)[:1]
    logging.warning_once.cache_clear()
    logging.enable_propagation()
    try:
        with caplog.at_level("WARNING", logger="transformers"):
            outputs = [run(prompts) for run in stock_runners(bench, 1).values()]
    finally:
        logging.disable_propagation()
    assert len(outputs) == 3 and all(output == outputs[0] for output in outputs)
    assert [record.getMessage() for record in caplog.records] == []
