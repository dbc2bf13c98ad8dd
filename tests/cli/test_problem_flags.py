"""Problems by flags: alone they say what a file says, over a file they change it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from specplan.ir.text.yaml_text import read_yaml
from specplan.planner.problem.errors import Origin
from specplan.planner.problem.loading import load_problem, problem_form
from tests.cli.test_program import specplan_here
from tests.cli.test_screen import NEVER

RECORD = Path(__file__).resolve().parents[2] / "examples/ci/plans/chat-8b-h100"
FLAGS = shlex.split("""
    --target target --draft draft=draft --acceptance draft=acceptance/draft.json
    --device h100-sxm --backend vllm --batch 1,16 --prompt 1024 --output 512
""")
FILE = """\
schema_version: 1
models:
  target: {path: target}
  drafts: [{name: draft, path: draft}]
acceptance: {draft: acceptance/draft.json}
device: h100-sxm
backend: vllm
workload: {batch_sizes: [1, 16], prompt_tokens: 1024, output_tokens: 512}
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recorded problem, as the current folder, beside a file that says what `FLAGS` say."""
    for name in ("target", "draft", "acceptance", "problem.yaml"):
        (tmp_path / name).symlink_to(RECORD / name)
    (tmp_path / "same.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(*arguments: str) -> dict[str, Any]:
    done = specplan_here(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_flags_say_what_the_file_says(record: Path) -> None:
    assert answer("optimize", *FLAGS) == answer("optimize", "same.yaml")


def test_flags_and_settings_change_a_file(record: Path) -> None:
    changed = FILE.replace("h100-sxm", "h200").replace("[1, 16]", "[4]")
    (record / "changed.yaml").write_text(changed + "limits: {memory: 140.0e9}\n")
    flags = ("--device", "h200", "--batch", "4", "--set", "limits.memory=140e9")
    assert answer("optimize", "same.yaml", *flags) == answer("optimize", "changed.yaml")


def test_several_prompts_and_backends_take_the_place_of_one(record: Path) -> None:
    text = FILE.replace("prompt_tokens: 1024", "prompt_lengths: [256, 1024]")
    (record / "changed.yaml").write_text(text.replace("backend: vllm", "backends: [vllm, sglang]"))
    flags = ("--prompt", "256,1024", "--backend", "vllm,sglang")
    assert answer("optimize", "same.yaml", *flags) == answer("optimize", "changed.yaml")


@pytest.mark.parametrize(
    "command", ["explain", "report --out r.html", "emit --engine vllm --out files"]
)
def test_every_command_that_takes_a_problem_takes_flags(record: Path, command: str) -> None:
    assert answer(*command.split(), *FLAGS)


def test_a_report_of_a_problem_proposes_nothing_that_needs_a_bundle(record: Path) -> None:
    specplan_here("report", *FLAGS, "--out", "r.md")
    text = (record / "r.md").read_text(encoding="utf-8")
    assert "specplan emit " in text and "specplan explain " in text
    assert "specplan bench" not in text and "specplan run" not in text


def test_a_cached_prefix_and_the_objective_are_flags_too(record: Path) -> None:
    text = FILE.replace("prompt_tokens: 1024", "prompt_tokens: 1024, cached_prefix: 900")
    (record / "changed.yaml").write_text(text + "objective: tpot\n")
    flags = ("--cached-prefix", "900", "--objective", "tpot")
    assert answer("optimize", "same.yaml", *flags) == answer("optimize", "changed.yaml")
    screen = specplan_here("optimize", "changed.yaml").stdout
    assert "prompt 1024 + 512, 900 of the prompt cached |" in screen
    assert "objective: tpot" in screen
    assert "faster decoding than without speculation, prefill aside" in screen
    written = specplan_here("init", "-", *FLAGS, *flags).stdout
    assert "\n  cached_prefix: 900\n" in written and "\nobjective: tpot\n" in written
    assert "\n  # cached_prefix: 512\n" in specplan_here("init", "-").stdout


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("emit {flags} --engine vllm --out files", 0),
        ("emit {flags} --engine transformers --out files", 0),
        ("whatif {flags} --acceptance 0.7", 0),
        ("optimize {flags} --tpot 0.1ms", 3),
        ("optimize {flags} --batch 1,16,4000", 0),
        ("optimize {flags} --show not-tried", 0),
        ("explain {flags}", 0),
    ],
)  # fmt: skip
def test_default_output_is_in_the_words_of_users(record: Path, command: str, code: int) -> None:
    done = specplan_here(*shlex.split(command.format(flags=shlex.join(FLAGS))))
    assert done.returncode == code, done.stderr
    assert not NEVER.search(done.stdout + done.stderr)


def test_emit_over_an_earlier_projection_says_so(record: Path) -> None:
    command = ("emit", *FLAGS, "--engine", "vLLM", "--out", "files")
    assert "Replaced" not in specplan_here(*command).stdout
    assert "Replaced: the files of an earlier `specplan emit` in files" in (
        specplan_here(*command).stdout
    )
    assert answer(*command)["replaced"] is True


def test_the_next_command_repeats_the_flags(record: Path) -> None:
    printed = specplan_here("optimize", *FLAGS).stdout
    line = next(line for line in printed.splitlines() if "specplan explain" in line)
    words = shlex.split(
        line.partition("specplan explain ")[2].removesuffix(" --show all   (or plan)")
    )
    assert sorted(words) == sorted(FLAGS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("optimize", "no problem is given"),
        ("optimize --target target", "needs --batch, --prompt, --output as well"),
        ("optimize --batch 1,x same.yaml", "--batch: must be whole numbers"),
        ("optimize --batch 1,0 same.yaml", "--batch: workload.batch_sizes.1: must be at least 1"),
        ("optimize --draft eagle same.yaml", '--draft eagle: it gives no value for "eagle"'),
        ("optimize --draft a=x --draft a=y same.yaml", 'the name "a" is given twice'),
        ("optimize --set nothing same.yaml", "a setting is written KEY=VALUE"),
        ("optimize --set workload.batchsizes=[1] same.yaml", "--set: workload.batchsizes: unknown"),
        ("optimize --set device.name=h200 same.yaml", 'no mapping "device"'),
        ("optimize --set models.drafts.3.name=x same.yaml", "models.drafts.3"),
        ("optimize none.yaml --batch 1", "none.yaml: "),
        ("optimize --set backend=vllm@0.1 same.yaml", "`specplan emit --any-version` writes for"),
        (
            "optimize --set workload.json_schema=same.yaml same.yaml",
            "JSON schema is not valid JSON",
        ),
        ("optimize --batch 4 --set workload.batch_sizes=[1] same.yaml", "--batch and --set work"),
        ("optimize --prompt 4 --set workload.prompt_lengths=[1] same.yaml", "both set"),
        ("optimize --batch 4 --set workload={} same.yaml", "both set workload.batch_sizes. Keep"),
        ("optimize --batch 1000000000 same.yaml", "must be at most 1000000, got 1000000000"),
        ("init x.yaml --device foo", '--device: device: unknown device "foo"'),
        ("init x.yaml --device 0xh100-sxm", "the number of devices must be at least 1"),
        ("init x.yaml --backend foo", '--backend: backend: unknown backend "foo"'),
        ("init x.yaml --batch 0", "--batch: workload.batch_sizes.0: must be at least 1, got 0"),
        ("tune same.yaml", "Add --engine vllm to tune on a serving engine, or set a backend that"),
        ("profile acceptance same.yaml", '"vllm" runs none here. Write backend: eager'),
        ("profile device same.yaml", '"vllm" runs none here. Write backend: eager'),
        ("profile gates same.yaml --out g", '"vllm" runs none here. Write backend: eager'),
        ("engines vllm@0.1", "vLLM 0.1 understands has not been verified. Known: "),
        ("optimize --acceptance draft= same.yaml", 'it gives no value for "draft"'),
        ("optimize --acceptance =0.7 same.yaml", "it names no drafter"),
        (
            "optimize --acceptance draft=1.2 same.yaml",
            "another form of acceptance, got 1.2. Write 0.75",
        ),
        (
            "optimize --acceptance draft=true same.yaml",
            "another form of acceptance, got True. Write 0.75",
        ),
        (
            "optimize --acceptance draft=[] same.yaml",
            "another form of acceptance, got []. Write 0.75",
        ),
        ("optimize --acceptance draft={length:9,at:3} same.yaml", "Write 0.75"),
        ("optimize --acceptance draft=70% same.yaml", '"70%" is neither a number from 0 to 1'),
        ("optimize --acceptance draft=nan same.yaml", '"nan" is neither a number from 0 to 1'),
        ("optimize --acceptance draft=0.7,text=0.3 same.yaml", "once for each drafter."),
        ("optimize --target nope same.yaml", "--target: models.target.path: there is no folder"),
        ("optimize --target nope same.yaml", "is relative to the current folder."),
        ("optimize --draft a=nope same.yaml", "is relative to the current folder."),
        ("optimize --set models.target.path=nope same.yaml", "is relative to the problem file."),
        ("explain target --batch 1", "made for the bundle's own problem"),
    ],
)
def test_broken_flags_are_named(record: Path, arguments: str, message: str) -> None:
    done = specplan_here(*arguments.split())
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not Path("x.yaml").exists()


def test_init_writes_a_file_that_says_what_the_flags_say(record: Path) -> None:
    assert answer("init", "new.yaml", *FLAGS) == {"problem": "new.yaml"}
    assert answer("optimize", "new.yaml") == answer("optimize", "same.yaml")


def test_init_fills_in_examples_and_replaces_nothing(record: Path) -> None:
    done = specplan_here("init", "new.yaml", "--target", "target", "--ttft", "500ms")
    assert done.stdout == "Problem: new.yaml\nEdit it, then: specplan optimize new.yaml\n"
    text = (record / "new.yaml").read_text()
    printed = specplan_here("init", "-", "--target", "target", "--ttft", "500ms").stdout
    assert text == printed.replace("specplan optimize problem.yaml", "specplan optimize new.yaml")
    spaced = specplan_here("init", "a b.yaml", "--target", "target").stdout
    assert spaced.endswith("specplan optimize 'a b.yaml'\n")
    problem = load_problem(record / "new.yaml")
    assert problem.limits.ttft == 0.5 and problem.workload.batch_sizes == (1, 16, 64)
    again = specplan_here("init", "new.yaml")
    assert again.returncode == 2 and "--force" in again.stderr
    assert specplan_here("init", "new.yaml", "--force").returncode == 0
    assert (record / "new.yaml").read_text() != text


def test_what_init_leaves_as_comments_can_be_uncommented(record: Path) -> None:
    text = specplan_here("init", "-", "--target", "target").stdout
    lines = text.replace("  # drafts:", "  drafts:").replace("  #   - {", "    - {")
    lines = lines.replace("# limits:", "limits:").replace("#   tpot:", "  tpot:")
    value, _ = read_yaml(lines, "new.yaml")
    form = problem_form(value, Origin())
    assert [draft.name for draft in form.models.drafts] == ["eagle", "small"]
    assert form.limits.tpot == 0.02
