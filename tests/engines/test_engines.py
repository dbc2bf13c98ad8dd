"""What is emitted, read and run by the engines themselves: `make test-engines`.

SPECPLAN_UPDATE_SCHEMAS=1 writes anew what `schemas/` stores of their options.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.engines.registry import open_table
from tests.engines.environments import FOLDER, REPOSITORY, installed, python_of

CHECKS = Path(__file__).parent / "checks"
SCHEMAS = Path(__file__).parent / "schemas"
SCRIPTS = {
    "vllm": ("vllm", "files"), "ray_serve": ("vllm", "ray"), "dynamo": ("vllm", "dynamo"),
    "sglang": ("sglang",), "openvino_genai": ("openvino_genai",),
    "onnxruntime_genai": ("onnxruntime_genai",), "llama_cpp": ("llama_cpp",),
}  # fmt: skip
"""The check of each engine, and what it is told besides the cases."""
RUN = ("openvino_genai", "onnxruntime_genai", "llama_cpp")
"""Engines that generate on a CPU."""
PROMPT = "def read(path):\n    with open(path) as file:\n        return file.read()\n\ndef write("
"""What the reference models go on with by themselves and by looking back."""


def exported(engine: str) -> Path:
    """The reference models in the engine's format; made once."""
    folder = FOLDER / "models" / engine
    for role in ("target", "draft"):
        source = REPOSITORY / "examples/reference_models" / role
        if engine == "llama_cpp":
            _to_gguf(source, folder / f"{role}.gguf")
        elif not (folder / role).exists():
            command: list[Any] = [python_of(engine), "-m"]
            if engine == "openvino_genai":
                command += ["optimum.commands.optimum_cli", "export", "openvino", "-m", source]
                command += ["--task", "text-generation-with-past", "--weight-format", "fp32"]
                command += [folder / role]
            else:
                command += ["onnxruntime_genai.models.builder", "-m", source, "-o", folder / role]
                command += ["-p", "fp32", "-e", "cpu"]
            subprocess.run(command, check=True)
    return folder


def _to_gguf(source: Path, file: Path) -> None:
    """By llama.cpp's converter, told that the tokenizer splits as GPT-2's."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    (tree,) = (FOLDER / "llama_cpp/src").glob("*/vendor/llama.cpp")
    known = (
        "import runpy, sys; sys.path[:0] = [sys.argv[1]]; from conversion import base; "
        "base.TextModel.get_vocab_base_pre = lambda self, tokenizer: 'gpt-2'; "
        "sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    script = [tree / "convert_hf_to_gguf.py", source, "--outfile", file, "--outtype", "f32"]
    subprocess.run([python_of("llama_cpp"), "-c", known, tree, *script], check=True)


@pytest.mark.parametrize("engine", SCRIPTS)
def test_the_engine_takes_every_case(engine: str, tmp_path: Path) -> None:
    if not installed(engine):
        pytest.skip(f"{FOLDER / engine} is not installed; run: make test-engines")
    from tests.engines.cases import emitted, reference, write

    (tmp_path / "models").mkdir()
    for name, emission in emitted(engine, tmp_path / "models"):
        write(engine, name, emission, tmp_path / "cases")
    script, *inputs = SCRIPTS[engine]
    if engine in RUN:
        for name, emission in reference(engine):
            write(engine, name, emission, tmp_path / "runs")
        inputs = [str(tmp_path / "runs"), str(exported(engine)), PROMPT]
    if engine == "llama_cpp":
        inputs += [str(FOLDER / "llama_cpp/build/bin/llama-server")]
    done = subprocess.run(
        [python_of(engine), CHECKS / f"check_{script}.py", tmp_path / "cases", *inputs],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    checked = json.loads(done.stdout.strip().splitlines()[-1])
    assert checked["cases"] and {k: why for k, why in checked["cases"].items() if why} == {}
    if engine in RUN:
        plain = checked["texts"]["plain"]
        assert plain and set(map(str, checked["texts"].values())) == {str(plain)}, "greedy text"
        drafted = checked.get("drafted", {})
        assert not drafted or (drafted["model"] and drafted["text"]), "it really drafts"
    _store(engine, checked)


def _store(engine: str, checked: dict[str, Any]) -> None:
    """Compare the engine's options with the stored ones, or store them."""
    path = SCHEMAS / f"{engine}.json"
    stored = {
        "engine": engine,
        "version": checked["version"],
        "made_on": date.today().isoformat(),
        "cases": sorted(checked["cases"]),
        "options": dict(sorted(checked["options"].items())),
    }
    if os.environ.get("SPECPLAN_UPDATE_SCHEMAS"):
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    known = json.loads(path.read_text(encoding="utf-8"))
    assert (known["version"], known["options"]) == (stored["version"], stored["options"])
    assert re.match(re.escape(open_table(engine).version), known["version"]) or engine in (
        "ray_serve", "dynamo",
    ), "the table is for another version"  # fmt: skip
