"""What is emitted, against what the engines themselves said of their options (`test_engines.py`).

TensorRT-LLM and Edge-LLM do not install here: their options were written down from their sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specplan.backends.engines.job import Emission
from specplan.backends.engines.registry import open_table
from tests.backends.engines.test_golden import emissions

SCHEMAS = Path(__file__).parent / "schemas"
STORED = sorted(path.stem for path in SCHEMAS.glob("*.json"))


def stored(engine: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"{engine}.json").read_text(encoding="utf-8"))
    return schema


def of_newest(engine: str) -> Iterator[Emission]:
    """Every emission for the engine's newest version."""
    return iter(emissions(f"{engine}@{open_table(engine).version}").values())


def used(engine: str, emission: Emission) -> Iterator[tuple[str, Any]]:
    """Names of the options that an emission sets, as the engine calls them, and their values."""
    documents = emission.documents
    match engine:
        case "vllm":
            for name in documents:
                yield from _nested(documents[name], "speculative-config", "{}.{}")
        case "ray_serve":
            config = documents["ray_serve.yaml"]["applications"][0]["args"]["llm_configs"][0]
            settings = config["engine_kwargs"].items()
            given = {name.replace("_", "-"): value for name, value in settings}
            yield from _nested(given, "speculative-config", "{}.{}")
        case "sglang":
            yield from documents["sglang.yaml"].items()
        case "llama_cpp":
            yield from documents["llama_cpp.json"].items()
            yield from ((name, None) for name in re.findall(r"--([a-z][a-z-]+)", emission.command))
        case "openvino_genai":
            yield from documents["openvino_genai.json"]["generation_config"].items()
        case "onnxruntime_genai":
            yield from documents["genai_config.overlay.json"].get("speculative", {}).items()
        case "tensorrt_llm":
            config = documents["tensorrt_llm.yaml"].get("speculative_config", {})
            kind = config.get("decoding_type")
            yield from ((f"{kind}.{name}", value) for name, value in config.items())
        case "tensorrt_edge_llm":
            for line in emission.command.replace("\\\n", " ").splitlines():
                program, *words = line.split()
                names = (word[2:] for word in words if word.startswith("--"))
                yield from ((f"{program}.{name}", None) for name in names)


def _nested(settings: dict[str, Any], key: str, form: str) -> Iterator[tuple[str, Any]]:
    yield from settings.items()
    for name, value in settings.get(key, {}).items():
        yield form.format(key, name), value


@pytest.mark.parametrize("engine", STORED)
def test_every_option_is_one_of_the_engine(engine: str) -> None:
    known, seen = stored(engine)["options"], 0
    for emission in of_newest(engine):
        for name, value in used(engine, emission):
            assert name in known, f"{engine} has no option {name}"
            choices = known[name].get("choices")
            assert choices is None or value is None or str(value) in choices, (name, value)
            seen += 1
    assert seen


@pytest.mark.parametrize("engine", STORED)
def test_the_table_says_what_was_checked(engine: str) -> None:
    schema = stored(engine)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", schema["made_on"]) and schema["version"]
    if engine not in ("ray_serve", "dynamo"):  # those name the vLLM that they bring
        assert schema["version"].startswith(open_table(engine).version)
