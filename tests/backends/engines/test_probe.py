"""A probe from the problem to the plan: emitted, run by its own script, imported, planned with."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specplan import api
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from tests.backends.engines import stand_in
from tests.cli.test_program import specplan_here
from tests.planner.big_models import write_70b

FLAGS = (
    *("--target", "target", "--draft", "eagle=eagle", "--device", "8xh100-sxm"),
    *("--batch", "1,16", "--prompt", "1024", "--output", "512"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configs of a 70B target and its EAGLE-3 head, and the programs of both engines."""
    folder = tmp_path_factory.mktemp("probe")
    write_70b(folder)
    lines = [json.dumps({"text": f"Question {i}: why?"}) for i in range(40)]
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    programs = folder / "programs"
    (programs / "sglang").mkdir(parents=True)
    stand = Path(stand_in.__file__)
    (programs / "python").symlink_to(sys.executable)
    (programs / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} {stand} vllm "$@"\n')
    (programs / "vllm").chmod(0o755)
    (programs / "sglang/__init__.py").touch()
    for module, name in (("launch_server", "sglang_server"), ("bench_serving", "sglang_bench")):
        code = f"import runpy, sys\nsys.argv[1:1] = ['{name}']\nrunpy.run_path({str(stand)!r}, "
        (programs / f"sglang/{module}.py").write_text(f"{code}run_name='__main__')\n")
    return folder


def run_script(folder: Path, probe: Path) -> subprocess.CompletedProcess[str]:
    """`./probe.sh` with the programs, at a port that is free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PATH": f"{folder / 'programs'}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "programs"),
        "URL": f"http://127.0.0.1:{port}",
    }
    return subprocess.run(
        [str(probe / "probe.sh")], capture_output=True, text=True, env=environment, timeout=120
    )


def probed(folder: Path, engine: str, *flags: str) -> Path:
    """A probe that was emitted and run."""
    probe = folder / engine
    done = specplan_here("emit", *FLAGS, *flags, "--engine", engine, "--probe", "--out", str(probe))
    assert done.returncode == 0, done.stderr
    assert "eagle with K=5" in done.stdout
    ran = run_script(folder, probe)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return probe


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_from_a_problem_to_a_plan_that_rests_on_what_the_engine_printed(
    folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    own = ("--prompts", "prompts.jsonl") if engine == "sglang" else ()
    probe = probed(folder, engine, *own)
    readme = (probe / "README.md").read_text()
    assert len(readme.splitlines()) <= 40 and "specplan import probe" in readme
    again = run_script(folder, probe)
    assert again.returncode == 0 and "b1-p1024" not in again.stdout, "finished runs are skipped"

    out = folder / f"{engine}-measured"
    done = specplan_here("import", "probe", str(probe), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert f"Next:  specplan optimize {out}/problem.yaml" in done.stdout
    profile = AcceptanceProfile.load(out / "eagle.json")
    chain = tuple(range(-1, 4)), (0,) * 5
    accepted = stand_in.length(stand_in.TEXT, 5)
    assert profile.tokens_per_round(*chain).mean == pytest.approx(accepted, rel=0.01)
    if engine == "vllm":  # it counts by position
        one = profile.tokens_per_round((-1,), (0,)).mean
        assert one == pytest.approx(1 + stand_in.TEXT[0], rel=0.01)
    rows = json.loads((out / "import.json").read_text())["points"]
    assert [(row["arm"], row["batch"]) for row in rows] == [
        ("plain", 1), ("plain", 16), ("eagle", 1), ("eagle", 16)
    ]  # fmt: skip
    for row in rows:
        drafts = 5 if row["arm"] == "eagle" else 0
        step = stand_in.step(row["batch"], drafts)
        assert row["ttft"] == pytest.approx(stand_in.first(row["batch"]))
        assert row["step"] == pytest.approx(step, rel=0.01)
        assert row["tpot"] == pytest.approx(step / (accepted if drafts else 1.0), rel=0.01)

    done = specplan_here("optimize", str(out / "problem.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "decided"
    assert not answer["explanation"].get("assumed")
    candidates = api.optimize(out / "problem.yaml").candidates
    for method, words, factor in (("autoregressive", "plain", 1.0), ("eagle3", "5", accepted)):
        candidate = next(c for c in candidates if c.method == method and words in c.words)
        for estimate in candidate.estimates:
            drafts = 0 if factor == 1.0 else 5
            tpot = stand_in.step(int(estimate.batch), drafts) / factor
            whole = stand_in.first(int(estimate.batch)) + 511 * tpot
            assert estimate.request_seconds.median == pytest.approx(whole, rel=0.02)


@pytest.fixture
def results(folder: Path, tmp_path: Path) -> Path:
    """Results of vLLM as the test above left them, to be damaged."""
    return Path(shutil.copytree(folder / "vllm", tmp_path / "vllm"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_unfinished_and_foreign_results_are_named(results: Path, tmp_path: Path) -> None:
    def message() -> str:
        done = specplan_here("import", "probe", str(results), "--out", str(tmp_path / "out"))
        assert done.returncode == 2 and not (tmp_path / "out").exists(), done.stdout
        return done.stderr

    eagle = results / "results/eagle"
    whole = (eagle / "b16-p1024.json").read_text()
    (eagle / "b16-p1024.json").write_text(whole[:-40])
    assert "cut off" in message() and "b16-p1024.json" in message()
    (eagle / "b16-p1024.json").write_text(whole)
    edit(eagle / "b16-p1024.json", failed=3, completed=61)
    assert "3 of 64 requests failed" in message() and "server.log" in message()
    (eagle / "b16-p1024.json").write_text(whole)
    edit(eagle / "prompts.json", spec_decode_per_position_acceptance_rates=[0.7, 0.5, 0.3])
    assert "drafted 3 tokens per step, and the probe asks for 5" in message()
    (eagle / "b1-p1024.after.txt").unlink()
    (eagle / "prompts.json").unlink()
    assert 'the run prompts of "eagle" has not finished' in message()
    assert "probe.sh again" in message()
    acceptance = ("--drafter", "eagle", "--out", str(tmp_path / "eagle.json"))
    done = specplan_here("import", "acceptance", str(results), *acceptance)
    assert done.returncode == 2 and "specplan import probe" in done.stderr
    shutil.rmtree(eagle)
    shutil.rmtree(results / "results/plain")
    assert "nothing has been measured yet" in message()
    shutil.rmtree(results / "results")
    (results / "probe.json").unlink()
    assert "probe.json" in message()


def test_what_has_no_probe(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    emit = ("emit", *FLAGS, "--probe", "--out", str(tmp_path / "x"))
    for flags, words in (
        (("--engine", "llama_cpp"), "cannot write a probe of llama.cpp"),
        (("--engine", "vllm", "--draft-tokens", "0"), "draft-tokens"),
    ):
        done = specplan_here(*emit, *flags)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    done = specplan_here(
        "emit", *FLAGS, "--engine", "vllm", "--probe", "--out", str(folder / "vllm")
    )
    assert done.returncode == 2 and "holds results" in done.stderr
    done = specplan_here("emit", *FLAGS, "--engine", "vllm", "--draft-tokens", "3", "--out", "y")
    assert done.returncode == 2 and "Add --probe" in done.stderr
