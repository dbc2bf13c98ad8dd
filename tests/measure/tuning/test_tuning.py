"""`specplan tune` on tiny models: it decides, can be ended at any time, and teaches `optimize`."""

from __future__ import annotations

import json
import random
import signal
import time
from math import log
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("optuna")

import specplan  # noqa: E402
from specplan import api  # noqa: E402
from specplan.ir.errors import UsageError  # noqa: E402
from specplan.measure.tuning.study import Trial, open_log  # noqa: E402
from specplan.planner import SearchResult, plan_key  # noqa: E402
from specplan.planner.search.comparing import TIE  # noqa: E402
from specplan.tuning import tune  # noqa: E402
from tests.matrix import sized  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402
from tests.started import Started, started_specplan  # noqa: E402

torch.set_num_threads(1)
MINUTES, RUNS = 10.0, 24
KILLS = sized(1, 2)
"""`test_race.py` kills races that go on from a kill."""


def write(folder: Path, **changes: Any) -> Path:
    """A problem whose device is a data sheet, so that little is measured beforehand."""
    path = write_problem(folder, prompts=6, output_tokens=12)
    problem = {
        "device": "cpu-generic",
        "sources": ["prompt_lookup"],
        "methods": ["draft_model", "prompt_lookup"],
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | problem | changes))
    return path


class Listener:
    """A listener that interrupts at some call about some work."""

    def __init__(self, work: str, calls: int) -> None:
        self.work, self.left = work, calls
        self.heard: list[str] = []

    def __call__(self, description: str, done: int, total: int) -> None:
        if description.startswith(self.work):
            self.heard.append(description)
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("problem"))


def test_a_bundle_tells_what_was_measured(problem: Path, tmp_path: Path) -> None:
    listener = Listener("tuning", RUNS)
    done = tune(problem, minutes=MINUTES, out=tmp_path / "bundle", progress=listener)
    bundle = specplan.load_bundle(tmp_path / "bundle")
    assert bundle.plan == done.plan and done.bundle is not None
    tuning = bundle.report["tuning"]
    assert tuning["trials"] == done.trials >= len(tuning["lines"]) > 2
    assert "autoregressive" in {line["method"] for line in tuning["lines"]}
    (chosen,) = (line for line in tuning["lines"] if line["plan"] == plan_key(done.plan))
    assert sum(line["leads"] for line in tuning["lines"]) == 1
    assert chosen["ratio"] <= (1.0 + TIE) * (1.0 + 1e-6)  # a tie goes to the simpler plan
    assert "prices were set right by" in " ".join(bundle.report["explanation"]["assumptions"])
    assert "best so far" in listener.heard[-1] and "min left" in listener.heard[-1]
    assert specplan.explain(bundle) == done.result.explain()
    compared = specplan.bench(bundle, limit=2, repeats=1, stock=False)
    assert len(compared.lines) == 2 or done.result.search.chosen is done.result.search.plain
    assert str(tmp_path) not in json.dumps(bundle.report["tuning"])


def test_interrupts(problem: Path, tmp_path: Path) -> None:
    """Before the first run there is no answer; after some, the best of them is one."""
    storage = str(tmp_path / "journal.log")
    with pytest.raises(KeyboardInterrupt):
        tune(problem, minutes=MINUTES, storage=storage, progress=Listener("tuning", 1))
    done = tune(problem, minutes=MINUTES, storage=storage, progress=Listener("tuning", 4))
    assert done.interrupted and done.trials == 3 and not done.decided
    assert plan_key(done.plan) in {line.plan for line in done.lines}
    assert done.as_dict()["tuning"]["storage"] == storage
    with pytest.raises(UsageError, match="needs time"):
        tune(problem, minutes=0.0)


def test_compiled_rounds_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one backend that compiles them, in a study of their own, and of its version."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend

    written, write_round = list[str](), OnnxRuntimeBackend.write

    def counted(self: Any, graph: Any, *others: Any) -> None:
        written.append(graph.plan.name)
        write_round(self, graph, *others)

    monkeypatch.setattr(OnnxRuntimeBackend, "write", counted)
    path, storage = write(tmp_path, methods=["prompt_lookup"]), str(tmp_path / "journal.log")
    interpreted = tune(path, minutes=MINUTES, storage=storage, progress=Listener("tuning", 3))
    assert not written
    compiled = write(tmp_path, methods=["prompt_lookup"], backend="onnxruntime")
    done = tune(compiled, minutes=MINUTES, storage=storage, progress=Listener("tuning", 5))
    assert len(written) >= len(done.lines) >= 1 and "autoregressive" in written
    assert done.study != interpreted.study and done.trials == 4
    monkeypatch.setattr(OnnxRuntimeBackend, "version", "of next year")
    with pytest.raises(KeyboardInterrupt):
        tune(compiled, minutes=MINUTES, storage=storage, progress=Listener("tuning", 1))
    lines = [json.loads(line) for line in Path(storage).read_text().splitlines()]
    studies = list(dict.fromkeys(one["study_name"] for one in lines if "study_name" in one))
    assert studies[:2] == [interpreted.study, done.study] and len(studies) == 3
    several = write(tmp_path, backends=["onnxruntime", "eager"])
    with pytest.raises(UsageError, match="on one backend, and the problem names several"):
        tune(several)


def distance(searched: SearchResult, lines: Any) -> list[float]:
    """How far the predicted speeds of the plans that ran are from the measured ones."""
    predicted = {
        plan_key(c.plan): c.estimates[0].tokens_per_second.mean
        for c in searched.candidates
        if c.priced and c.plan is not None
    }
    return [abs(log(predicted[line.plan] / line.tokens_per_second)) for line in lines]


def test_the_next_search_is_nearer_to_what_was_measured(tmp_path: Path) -> None:
    alone: dict[str, Any] = {"models": {"target": {"path": "target", "dtype": "float64"}}}
    alone["methods"] = ["prompt_lookup"]
    api.profile_device(write(tmp_path, device="measured", **alone), passes=1)
    (table,) = (tmp_path / ".specplan" / "device").glob("*.json")
    path = write(tmp_path, device=str(table), **alone)
    before = api.optimize(path).search
    done = tune(path, minutes=MINUTES, progress=Listener("tuning", 2 * RUNS))
    after = api.optimize(path)
    old, new = (distance(searched, done.lines) for searched in (before, after.search))
    assert sum(new) < sum(old) and max(new) < 0.35
    assert "prices were set right by" in after.explain()
    chosen = after.search.chosen
    assert chosen is after.search.plain or chosen.estimates[0].measured
    elsewhere = json.loads(table.read_text())
    elsewhere["provenance"]["hardware"] = "another machine"
    table.write_text(json.dumps(elsewhere))
    assert "prices were set right by" not in api.optimize(path).explain()


def start(problem: Path, storage: Path) -> Started:
    storage_flags = ("--storage", str(storage), "--json")
    return started_specplan("tune", str(problem), "--minutes", "10", *storage_flags)


def recorded(storage: Path) -> int:
    """Trials in the journal, whole or not; optuna's number of their operation is 4."""
    return storage.read_bytes().count(b'{"op_code":4,') if storage.exists() else 0


def wait_for_a_trial(process: Started, storage: Path) -> None:
    before = recorded(storage)
    while process.poll() is None and recorded(storage) <= before:
        time.sleep(0.005)


def trials_of(storage: Path, study: str) -> tuple[Trial, ...]:
    return open_log(str(storage), storage, study).trials()


def test_killed_at_random_moments_and_interrupted_at_last(tmp_path: Path) -> None:
    problem = write(tmp_path, methods=["prompt_lookup"])
    described = json.loads(problem.read_text())
    described["workload"] |= {"batch_sizes": [1, 2, 3, 4], "output_tokens": 80}  # long enough
    problem.write_text(json.dumps(described))
    storage, chance = tmp_path / "journal.log", random.Random(11)
    study, earlier = "", ()
    for _ in range(KILLS):
        process = start(problem, storage)
        wait_for_a_trial(process, storage)
        time.sleep(chance.uniform(0.0, 0.2))
        process.kill()
        study = json.loads(storage.read_text().splitlines()[0])["study_name"]
        now = trials_of(storage, study)
        assert now[: len(earlier)] == earlier, "nothing is lost"
        earlier = now
    process = start(problem, storage)
    wait_for_a_trial(process, storage)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0, process.errors
    assert "best plan so far" in process.errors
    answer = json.loads(process.output)
    assert answer["tuning"]["interrupted"] and answer["tuning"]["study"] == study
    finished = trials_of(storage, study)
    assert len(finished) == answer["tuning"]["trials"] and finished[: len(earlier)] == earlier
    assert specplan.verify_plan(specplan.parse_plan(answer["plan"])) == ()
    loads = {trial.batch for trial in finished}
    assert {line["batch"] for line in answer["tuning"]["lines"] if line["leads"]} <= loads
