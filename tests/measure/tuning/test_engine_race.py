"""`specplan tune --engine` against a server of completions whose speed is known."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import ceil
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

pytest.importorskip("optuna")

from specplan.ir import parse_plan
from tests.cli.test_program import specplan_here
from tests.measure.tuning import completions_server
from tests.measure.tuning.completions_server import step, tokens
from tests.planner.big_models import write_70b

OUTPUT = 64


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Healthy(BaseHTTPRequestHandler):
    """Answers as a server does that is ready."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


class Place:
    """A folder with a problem, the program `vllm`, and an address of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, folder / "ledger"
        write_70b(folder)
        lines = [json.dumps({"text": f"Question {i}: why?"}) for i in range(40)]
        (folder / "prompts.jsonl").write_text("\n".join(lines))
        (folder / "bin").mkdir()
        program = folder / "bin/vllm"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {completions_server.__file__} "$@"\n')
        program.chmod(0o755)
        self.url = f"http://127.0.0.1:{free_port()}"

    def problem(self, *flags: str) -> list[str]:
        """Flags of the problem."""
        return [
            *("--target", str(self.folder / "target"), "--draft", f"eagle={self.folder / 'eagle'}"),
            *("--device", "8xh100-sxm", "--acceptance", "eagle=0.7", "--batch", "1"),
            *("--prompt", "100", "--output", str(OUTPUT), "--set", "workload.temperature=0"),
            *("--set", "methods=[eagle3]", "--set", f"profiles={self.folder / 'profiles'}", *flags),
        ]

    def arguments(self, *flags: str) -> list[str]:
        """Of `specplan tune --engine vllm`."""
        prompts = ["--prompts", str(self.folder / "prompts.jsonl")]
        engine = ["--engine", "vllm", "--url", self.url, "--json", *prompts]
        return ["tune", *self.problem(*engine), *flags]

    def start(self, *flags: str) -> subprocess.Popen[bytes]:
        """A process, to be killed."""
        program = [sys.executable, "-m", "specplan.cli"]
        return subprocess.Popen([*program, *self.arguments(*flags)], stdout=subprocess.DEVNULL)

    def tune(self, *flags: str) -> dict[str, Any]:
        """The answer."""
        done = specplan_here(*self.arguments(*flags))
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def runs(self) -> list[str]:
        """Runs of the benchmark that count: plan, load and turn of each."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [line for line in lines if line.startswith("run") and "warm-up" not in line]

    def answers(self) -> int | None:
        """Status of the server; None where none answers."""
        try:
            with urlopen(f"{self.url}/health", timeout=5) as answer:
                return int(answer.status)
        except OSError:
            return None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("LEDGER", str(place.ledger))
    return place


def draft_tokens(words: str) -> int:
    """Of a plan, by its setting in words."""
    number = re.search(r"\d+", words)
    return int(number[0]) if number else 0


def seconds(drafts: int) -> float:
    """Of a request, as the server has it."""
    return ceil(OUTPUT / tokens(drafts)) * step(drafts)


def wait_for(words: str, place: Place) -> None:
    """Until the ledger has a line."""
    until = time.monotonic() + 60.0
    while not (place.ledger.exists() and re.search(words, place.ledger.read_text())):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_fastest_that_the_engine_serves_wins_whatever_fails_or_is_killed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimates prefer longer drafts; of K = 6, 7, 8 none is served to the end."""
    for fault, drafts in (("DIES", "6"), ("HANGS", "7"), ("BREAKS", "8")):
        monkeypatch.setenv(fault, drafts)
    flags = ("--minutes", "20", "--timeout", "5")
    for moment in ("start 5", r"eagle3-\w+ b1-p100-1"):
        killed = place.start(*flags)
        wait_for(moment, place)
        killed.kill()
        killed.wait()
    answer = place.tune(*flags, "--out", str(place.folder / "files"))

    tuning = answer["tuning"]
    assert tuning["decided"] and not tuning["interrupted"]
    lines = {draft_tokens(line["words"]): line for line in tuning["lines"]}
    assert lines[4]["leads"] and {0, 4, 5} <= {*lines} <= {*range(20)} - {6, 7}
    assert lines[5]["predicted"] > lines[4]["predicted"], "or there was nothing to find"
    for drafts in (0, 4, 5):
        assert lines[drafts]["tokens_per_round"] == pytest.approx(tokens(drafts), rel=0.05)
        fastest = OUTPUT / seconds(drafts)
        assert 0.5 * fastest < lines[drafts]["tokens_per_second"] < 1.05 * fastest
    failures = {draft_tokens(one["words"]): one for one in tuning["failures"]}
    assert "ended (exit code 1)" in failures[6]["reason"]
    assert failures[6]["log"].splitlines()[-1] == "CUDA out of memory: 3 GiB are free"
    assert failures[7]["reason"] == "the server did not answer within 5 s"
    assert failures[7]["log"] == "loading with K=7"
    assert "ended (exit code 134)" in failures[8]["reason"]
    assert "illegal memory access" in failures[8]["log"]

    runs = Counter(place.runs())
    again = {run: count for run, count in runs.items() if count > 1}
    assert sum(again.values()) <= 4 and len(runs) >= 15, "only what was killed ran twice"
    files = yaml.safe_load((place.folder / "files/vllm.yaml").read_text())
    assert files["speculative-config"]["num_speculative_tokens"] == 4
    before = place.ledger.read_text()
    assert place.tune(*flags)["tuning"]["lines"] == tuning["lines"]
    assert place.ledger.read_text() == before, "what is decided is not run again"
    assert place.answers() is None, "no server is left"

    problem = place.problem("--backend", "vllm")
    planned = specplan_here("optimize", *problem, "--json")
    assert planned.returncode == 0, planned.stderr
    answer = json.loads(planned.stdout)
    assert parse_plan(answer["plan"]).name
    assert "prices were set right by" in " ".join(answer["explanation"]["assumptions"])


def test_commands_of_the_user(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in the background, stopped by a command; a benchmark that prints its result."""
    alone = ("--set", "methods=[autoregressive]", "--timeout", "20")
    serve = "cp vllm.yaml served.yaml && vllm serve target --config served.yaml & echo $! > pid"
    result = '{"completed": 8, "duration": 2.0, "total_input_tokens": 800, "failed": %d, '
    result += '"total_output_tokens": 512, "mean_ttft_ms": 40.0, "mean_tpot_ms": 10.0}'
    ask = """curl -s -d '{"max_tokens": 4, "stream": true}' $URL/v1/completions > $RESULT.events"""
    bench = f"test $BATCH$REQUESTS$SEED -ge 180 && {ask} && echo '{result}'"
    commands = ("--serve", serve, "--stop", "kill $(cat pid)", "--bench")
    done = specplan_here(*place.arguments(*alone, *commands, bench % 3))
    assert done.returncode == 2 and "3 of 11 requests failed" in done.stderr
    assert "Mend the command or the engine, and add --retry-failed" in done.stderr
    assert place.answers() is None
    done = specplan_here(*place.arguments(*alone, *commands, "echo no model >&2; exit 3"))
    assert done.returncode == 2 and "failed (exit code 3)" in done.stderr
    assert "no model" in done.stderr

    answer = place.tune(*alone, *commands, bench % 0)
    (line,) = answer["tuning"]["lines"]
    assert line["tokens_per_second"] == pytest.approx(64 / 0.67) and line["turns"] == 3
    assert place.answers() is None and not answer["tuning"]["failures"]

    monkeypatch.setenv("DIES", "0")
    more = place.arguments(*alone, "--minutes", "30", *commands, bench % 0)
    assert specplan_here(*more).returncode == 0, "it is decided"
    other = place.arguments(*alone, "--bench", bench % 0)
    assert specplan_here(*other).returncode == 2
    monkeypatch.delenv("DIES")
    assert "--retry-failed" in specplan_here(*other).stderr
    assert specplan_here(*other, "--retry-failed").returncode == 0


def test_what_is_refused(place: Place) -> None:
    for flags, words in (
        (
            ("--engine", "llama_cpp", "--device", "mi325x"),
            "does not know how llama.cpp is measured",
        ),
        (("--device", "8xh100-sxm", "--batch", "64"), "40 prompts do not fill a batch of 64"),
        (("--minutes", "0"), "a tuning needs time"),
    ):
        done = specplan_here(*place.arguments(*flags))
        assert done.returncode in (2, 5) and words in done.stderr, done.stderr
    done = specplan_here("tune", *place.problem("--bench", "true"))
    assert done.returncode == 2 and "Add --engine" in done.stderr
    with HTTPServer(("127.0.0.1", int(place.url.rpartition(":")[2])), Healthy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        done = specplan_here(*place.arguments())
        server.shutdown()
    assert done.returncode == 2 and "did not start runs there" in done.stderr
