"""Runs in the environment of OpenVINO GenAI: its validator, and generation of every case.

Arguments: folder of all cases, folder of those that run, folder of the exported reference models,
prompt. Prints one JSON document.
"""

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

import openvino_genai


def module_of(case):
    """The `generate.py` of a case."""
    spec = importlib.util.spec_from_file_location(f"generate_{case.name}", case / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(case):
    """Why the settings of a case are not taken; "" where they are."""
    settings = json.loads((case / "openvino_genai.json").read_text(encoding="utf-8"))
    try:
        config = openvino_genai.GenerationConfig(max_new_tokens=64, **settings["generation_config"])
        config.validate()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main():
    cases, runs, models, prompt = sys.argv[1:]
    result = {"cases": {case.name: check(case) for case in sorted(Path(cases).iterdir())}}
    result["texts"] = {}
    for case in sorted(Path(runs).iterdir()):
        module = module_of(case)
        result["texts"][case.name] = module.generate(module.open_pipeline(models), prompt, 64)
    result["version"] = importlib.metadata.version("openvino-genai")
    own = vars(openvino_genai.GenerationConfig)
    result["options"] = {name: {} for name, kind in own.items() if isinstance(kind, property)}
    print(json.dumps(result))


main()
