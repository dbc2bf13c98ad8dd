"""The program as a user meets it: help, usage errors, exit codes, missing extras."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import jsonschema
import pytest
from typer.core import TyperGroup
from typer.main import get_command

from specplan.cli import main
from specplan.ir import errors

REPOSITORY = Path(__file__).resolve().parents[2]
COMMANDS = ("methods", "devices", "laws", "schema")
BLOCKED = ("torch", "transformers", "tokenizers")


def specplan(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, with further environment variables."""
    return subprocess.run(
        [sys.executable, "-m", "specplan.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", **environment},
    )


def specplan_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in this process: quicker, for commands that load torch."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["specplan", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main.run()
        exit_code: object = 0
    except SystemExit as end:
        exit_code = end.code or 0
    finally:
        sys.argv = argv
    assert isinstance(exit_code, int)
    return subprocess.CompletedProcess(arguments, exit_code, out.getvalue(), err.getvalue())


def path_without_torch(folder: Path) -> str:
    """A PYTHONPATH with which torch and its company cannot be imported, as on a base install."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {BLOCKED!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture
def no_torch(tmp_path: Path) -> str:
    return path_without_torch(tmp_path)


def specplan_each(
    commands: Sequence[Sequence[str]], no_torch: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run some commands in one process in which torch cannot be imported."""
    code = (
        "import json, sys\nfrom tests.cli.test_program import specplan_here\n"
        "done = [specplan_here(*one) for one in json.loads(sys.argv[1])]\n"
        "print(json.dumps([[one.returncode, one.stdout, one.stderr] for one in done]))"
    )
    environment = {**os.environ, "PYTHONPATH": no_torch, "NO_COLOR": "1", "TERM": "dumb"}
    whole = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        capture_output=True, text=True, env=environment, cwd=REPOSITORY,
    )  # fmt: skip
    assert whole.returncode == 0, whole.stderr
    return [
        subprocess.CompletedProcess(command, *done)
        for command, done in zip(commands, json.loads(whole.stdout), strict=True)
    ]


def test_help_and_json_need_no_torch(no_torch: str) -> None:
    commands = [[*command, "--help"] for command in ([], *([name] for name in COMMANDS))]
    commands += [[name, "--json"] for name in COMMANDS]
    for done in specplan_each(commands, no_torch):
        assert done.returncode == 0, done
        if done.args[-1] == "--help":
            assert "Usage" in done.stdout and (len(done.args) == 1 or "--json" in done.stdout)
        else:
            assert isinstance(json.loads(done.stdout), dict) and done.stderr == "", done


@pytest.mark.parametrize("name", [None, "nothing"])
def test_the_program_has_all_commands_or_the_one_that_is_asked_for(name: str | None) -> None:
    whole, alone = (get_command(main.program(asked)) for asked in (name, "optimize"))
    assert isinstance(whole, TyperGroup) and isinstance(alone, TyperGroup)
    assert list(alone.commands) == ["optimize"] and {*COMMANDS, "optimize"} < set(whole.commands)


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nsys.argv = ['specplan', '--help']\n"
        "from specplan.cli.main import run\n"
        "try:\n    run()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print({'torch', 'transformers', 'pydantic', 'scipy', 'sympy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(specplan_here("schema").stdout))


def test_laws_are_listed_and_printed() -> None:
    """By either command, as text and as JSON; the page on disk is what `--markdown` prints."""
    listed = specplan_here("laws").stdout
    names = [law["name"] for law in json.loads(specplan_here("laws", "--json").stdout)["laws"]]
    assert len(names) > 20 and all(name in listed for name in names)
    done = specplan_here("explain", "--law", "pearl").stdout
    assert done == specplan_here("laws", "pearl").stdout
    assert "arXiv 2408.11850" in done and "1.5825" in done
    page = REPOSITORY / "docs/laws.md"
    assert specplan_here("laws", "--markdown").stdout == page.read_text(encoding="utf-8")
    lost = specplan_here("explain", "--law", "nobody")
    assert lost.returncode == 2 and "Known: block_verification" in lost.stderr
    assert specplan_here("explain").returncode == 2


def test_methods_and_devices_are_listed() -> None:
    methods = specplan_here("methods").stdout
    assert all(name in methods for name in ("autoregressive", "draft_model", "prompt_lookup"))
    assert "h200" in specplan_here("devices").stdout
    first, *_ = json.loads(specplan_here("devices", "--json").stdout)["devices"]
    assert set(first["sources"]) >= {"memory_bytes", "memory_bandwidth", "peak_flops"}


def test_the_catalogue_is_whole() -> None:
    """Of each: where it was published, what it needs, and whether it keeps the target's law."""
    document = json.loads(specplan_here("methods", "--json").stdout)
    assert len({method["name"] for method in document["methods"]}) >= 28
    assert len({rule["name"] for rule in document["rules"]}) >= 14
    for method in document["methods"]:
        drafts = bool(method["acceptance"])  # plain decoding drafts nothing, and nobody claims it
        assert bool(method["paper"]) == drafts, method["name"]
        assert isinstance(method["sources"], list), method["name"]
        assert isinstance(method["needs_draft_model"], bool), method["name"]
        assert isinstance(method["lossless"], bool), method["name"]
    for rule in document["rules"]:
        assert rule["paper"] and isinstance(rule["needs"], list), rule["name"]
        assert rule["lossless"] == (rule["loss"] is None), rule["name"]
    assert sum(not method["acceptance"] for method in document["methods"]) == 1
    assert sum(not rule["needs"] for rule in document["rules"]) <= 1  # what accepts unseen


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("methods", "eagle3", "arXiv 2503.01840"),
        ("methods", "lenient", "lossless"),
        ("engines", "trtllm", "verified_against"),
        ("devices", "8xH100-SXM", "NVIDIA H100 Tensor Core GPU datasheet"),
    ],
)
def test_one_is_shown_in_full(command: str, name: str, words: str) -> None:
    done = specplan_here(command, name)
    assert done.returncode == 0 and words in done.stdout
    assert isinstance(json.loads(specplan_here(command, name, "--json").stdout), dict)
    unknown = specplan_here(command, f"{name}x")
    assert unknown.returncode == 2 and "unknown" in unknown.stderr


def test_the_package_is_the_program_too() -> None:
    command = [sys.executable, "-m", "specplan", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == specplan_here("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "what"),
    [
        (("devices", "h21"), 2, 'unknown device "h21"'),
        (("devices", "0xh200"), 2, "the number of devices must be at least 1"),
        (("devices", "--nothing"), 2, "No such option: --nothing"),
        (("optimize",), 2, "no problem is given"),
        (("report", "none.yaml"), 2, ""),
    ],
)
def test_with_json_errors_are_one_document(
    arguments: tuple[str, ...], exit_code: int, what: str
) -> None:
    done = specplan_here(*arguments, "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == exit_code == error["code"]
    assert what in error["what"] and set(error) == {"what", "where", "remedy", "code", "errors"}
    assert done.stderr  # people read it there


def test_with_json_every_error_of_a_problem_is_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text("batch: 1\ndevice: h100\n")
    error = json.loads(specplan_here("optimize", str(path), "--json").stdout)["error"]
    assert error["what"] == f"{len(error['errors'])} errors" and error["where"] == str(path)
    assert error["errors"][1]["where"] == f"{path}:2: device"


def completed(words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    code = "import sys; sys.argv = ['specplan']; from specplan.cli.main import run; run()"
    shell = {
        "_SPECPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **shell}
    )
    return done.stdout.split()


def test_shells_complete_commands_flags_and_devices() -> None:
    assert "--install-completion" in specplan("--help").stdout
    assert completed("specplan opt") == ["optimize"]
    assert completed("specplan optimize --dev") == ["--device"]
    assert completed("specplan optimize --device 8xh1") == ["8xh100-pcie", "8xh100-sxm"]
    assert "vllm" in completed("specplan tune --backend v")


def test_version() -> None:
    import specplan as package

    assert specplan("--version").stdout == f"specplan {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-command",),
        ("schema", "--no-such-option"),
        ("methods", "surplus"),
        ("methods", "--measured", "README.md"),
        (),
    ],
)
def test_usage_errors_exit_with_2(arguments: tuple[str, ...]) -> None:
    assert specplan_here(*arguments).returncode == 2


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (errors.UsageError("w", where="f.yaml: a.b", remedy="Mend it."), 2, "f.yaml: a.b: w. Me"),
        (errors.InfeasibleError("limits.memory is too small"), 3, "limits.memory is too small"),
        (errors.MissingCapabilityError("no engine"), 4, "no engine"),
        (errors.NothingToCompareError("no pairs"), 5, "no pairs"),
        (errors.RegressionError("slower"), 1, "slower"),
        (errors.SpecplanError("broken"), 70, "broken"),
        (ZeroDivisionError("oops"), 70, "internal error: ZeroDivisionError: oops"),
        (ModuleNotFoundError("x", name="torch.nn"), 4, "pip install 'specplan[run]'"),
        (ModuleNotFoundError("x", name="onnxruntime"), 4, "pip install 'specplan[onnx]'"),
        (ModuleNotFoundError("x", name="elsewhere"), 70, "internal error"),
        (PermissionError(13, "Permission denied", "/out"), 2, "/out: Permission denied"),
        (OSError("no file"), 70, "internal error"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_exit_code_of_every_error(
    error: BaseException,
    exit_code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(asked: str | None) -> None:
        raise error

    monkeypatch.setattr(main, "program", fail)
    monkeypatch.delenv("SPECPLAN_DEBUG", raising=False)
    with pytest.raises(SystemExit) as end:
        main.run()
    captured = capsys.readouterr()
    assert end.value.code == exit_code
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(asked: str | None) -> None:
        raise errors.UsageError("wrong")

    monkeypatch.setattr(main, "program", fail)
    monkeypatch.setenv("SPECPLAN_DEBUG", "1")
    with pytest.raises(SystemExit):
        main.run()
    assert "Traceback" in capsys.readouterr().err
