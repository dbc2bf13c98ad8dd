"""The commands of docs/tasks.md, run as a new user would: nothing is edited by hand.

Each task is a section of the page, with at most three commands. `ANSWERS` has what its commands
must say, and their exit codes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from tests.cli.test_program import specplan_here
from tests.planner.big_models import write_70b
from tests.planner.checkpoints import write_checkpoint

PAGE = Path(__file__).resolve().parents[2] / "docs/tasks.md"
NEVER = re.compile(r"\b(refused?|priced?|told|laws?|loads?|chain of)\b", re.IGNORECASE)
MOST_COMMANDS, MOST_LINES, MOST_COLUMNS = 3, 30, 100
LOG = (
    "(APIServer pid=1) INFO 11-20 10:00:00 [metrics.py:96] SpecDecoding metrics: Mean acceptance "
    "length: 2.68, Accepted throughput: 102.10 tokens/s, Drafted throughput: 182.40 tokens/s, "
    "Accepted: 1021 tokens, Drafted: 1824 tokens, Per-position acceptance rate: 0.770, 0.540, "
    "0.370, Avg Draft acceptance rate: 56.0%\n"
)
"""A line as `SpecDecodingLogging.log` of vllm/v1/spec_decode/metrics.py prints it."""


@dataclass(frozen=True)
class Answer:
    """What one command must do: its exit code, and what it says."""

    says: tuple[str, ...]
    code: int = 0
    whole: bool = False
    """Everything was asked for: neither its length nor its words are limited."""


ANSWERS: dict[str, list[Answer]] = {
    "Plan a 70B model with an EAGLE-3 head, without measurements": [
        Answer(("Problem: problem.yaml",)),
        Answer(
            (
                "No decision: no acceptance is known for eagle",
                "pays from",
                r"eagle +1 +0\.\d\d +\d\.\d\dx K\d",
                r"eagle +64 +0\.\d\d +\d\.\d\dx K\d",
                "specplan whatif problem.yaml",
            ),
            code=6,
        ),
        Answer((r"Use the EAGLE-3 head", "Assumed, not measured", r"faster than without")),
    ],
    "The same with a line of vLLM's log": [
        Answer(
            (
                r'Use the EAGLE-3 head "eagle": \d draft tokens up to \d+ requests, \d above',
                r"imported [a-z0-9 ]+, [0-9-]+, from vllm\.log \(vllm-log, 608",
                r"TPOT ms",
                "specplan emit problem.yaml",
            )
        )
    ],
    "K by batch size for vLLM": [Answer(("vllm serve", "--config vllm.yaml", "README.md"))],
    "Which of two GPUs": [Answer(("a: 8xh100-sxm", "b: 8xh200", r"64 +1024 .* \d\.\d\dx"))],
    "Whether to train a head": [
        Answer(("pays from", r"EAGLE-3 head +1 +8192 +32000 +0\.\d\d +\d\.\d+x")),
        Answer(("config.json: models/new-head/config.json", "--acceptance prior")),
        Answer((r'Use the EAGLE-3 head "head"', "Assumed, not measured")),
    ],
    "Why a plan was not taken": [
        Answer(("second choices", "prompt_lookup, chain from the text"), whole=True),
        Answer(("eagle", "tokens per"), whole=True),
    ],
    "Sweep the acceptance": [Answer((r" 0\.3 +0\.4 +0\.5", "Rows: sweep.csv"))],
    "Limit the time per output token to 20 ms": [Answer(("Use the EAGLE-3 head",))],
    "Compare two bundles": [
        Answer(("faster than without", "Assumed, not measured")),
        Answer(("faster than without", "Assumed, not measured")),
        Answer(
            (
                'a: before: draft model "tiny" K',
                'b: after: draft model "tiny" K',
                r"8 +64 .* 1\.[1-9]\dx",
            )
        ),
    ],
    "A report to send": [Answer(("Report: report.html",))],
}


def tasks() -> dict[str, list[str]]:
    """Commands of each section of the page, without their comments."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    commands = {}
    for section in sections:
        title = section.partition("\n")[0]
        blocks = re.findall(r"```sh\n(.*?)```", section, flags=re.DOTALL)
        lines = "".join(blocks).replace("\\\n", " ").splitlines()
        commands[title] = [line.partition("  #")[0].strip() for line in lines if line.strip()]
    return commands


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[CompletedProcess[str]]]:
    """What every command of the page did, in its order and in one folder."""
    pytest.importorskip("jinja2")
    folder = tmp_path_factory.mktemp("tasks")
    write_70b(folder / "models")
    (folder / "models/target").rename(folder / "models/llama-70b")
    (folder / "models/eagle").rename(folder / "models/eagle3-head")
    write_checkpoint(folder / "models/small", num_hidden_layers=16)
    write_checkpoint(folder / "models/tiny", seed=1)
    (folder / "vllm.log").write_text(LOG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = {
            title: [specplan_here(*shlex.split(command)[1:]) for command in commands]
            for title, commands in tasks().items()
        }
        served = yaml.safe_load((folder / "served/vllm.yaml").read_text())
        ranges = served["speculative-config"]["num_speculative_tokens_per_batch_size"]
        assert ranges[0][0] == 1 and ranges[-1][1] == 64 and len(ranges) > 1
        assert (folder / "report.html").stat().st_size > 10_000
        assert (folder / "sweep.csv").read_text().count("\n") == 1 + 3 * 7
    return done


def test_every_task_has_an_answer_and_few_commands() -> None:
    assert list(tasks()) == list(ANSWERS) and len(ANSWERS) == 10
    for title, commands in tasks().items():
        assert len(commands) == len(ANSWERS[title]) <= MOST_COMMANDS, title
        assert all(command.startswith("specplan ") for command in commands), title


@pytest.mark.parametrize("title", ANSWERS)
def test_a_task(runs: dict[str, list[CompletedProcess[str]]], title: str) -> None:
    for done, answer in zip(runs[title], ANSWERS[title], strict=True):
        command = " ".join(done.args)
        assert done.returncode == answer.code, f"{command}\n{done.stderr}"
        for words in answer.says:
            assert re.search(words, done.stdout), f"{command}: {words}\n{done.stdout}"
        if answer.whole:
            continue
        lines = done.stdout.splitlines()
        assert len(lines) <= MOST_LINES, command
        long = [line for line in lines if len(line) > MOST_COLUMNS and "specplan " not in line]
        assert not long, command  # commands stay whole, to be copied
        assert not NEVER.findall(done.stdout), f"{command}: {NEVER.findall(done.stdout)}"
