"""Runs in the environment of ONNX Runtime GenAI: merges and generates every case that runs.

Arguments: folder of all cases, folder of those that run, folder of the exported reference models,
prompt. Prints one JSON document.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime_genai


def merged(case, models, folder):
    """The exported models with the case's settings."""
    model = Path(folder) / case.name
    shutil.copytree(Path(models) / "target", model)
    shutil.copytree(Path(models) / "draft", model / "draft")
    subprocess.run([sys.executable, case / "merge.py", model], check=True)
    return model


def open_model(case, models, folder):
    """Why the settings of a case are not taken; "" where they are."""
    try:
        onnxruntime_genai.Model(str(merged(case, models, folder)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def generate(folder, prompt):
    """The text that follows, and how many tokens were drafted."""
    model = onnxruntime_genai.Model(str(folder))
    tokens = onnxruntime_genai.Tokenizer(model).encode(prompt)
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=len(tokens) + 64)
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens(tokens)
    while not generator.is_done():
        generator.generate_next_token()
    ids = [int(one) for one in generator.get_sequence(0)][len(tokens) :]
    try:
        drafted = generator.get_speculative_stats()["draft_tokens_proposed"]
    except Exception:  # without drafting there is nothing to tell
        drafted = 0
    return ids, drafted


def main():
    cases, runs, models, prompt = sys.argv[1:]
    result = {"cases": {}, "texts": {}, "drafted": {}}
    with tempfile.TemporaryDirectory() as folder:
        for case in sorted(Path(cases).iterdir()):
            result["cases"][case.name] = open_model(case, models, folder)
    with tempfile.TemporaryDirectory() as folder:
        for case in sorted(Path(runs).iterdir()):
            ids, drafted = generate(merged(case, models, folder), prompt)
            result["texts"][case.name], result["drafted"][case.name] = ids, drafted
    result["version"] = onnxruntime_genai.__version__
    parameters = onnxruntime_genai.GeneratorParams(onnxruntime_genai.Model(f"{models}/target"))
    result["options"] = {name: {} for name in parameters.get_speculative_options()}
    print(json.dumps(result))


main()
