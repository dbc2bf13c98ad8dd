"""What does the quickstart's target write: Python, or repetitions?

    python benchmarks/quickstart_text.py [--set 1,0.93 --set 0.8,1] [--tokens 48,64] [--samples 4]
        [--json]

The quickstart's target continues the quickstart's prompts, each setting being TEMPERATURE,TOP_P;
without one, those of its problem; `--samples` outputs of each prompt. Sampling keeps the target's
distribution, so plain decoding in batches writes what every plan writes.

An output parses if the prompt with it, cut at the last statement, is Python, and at least one
statement of it is the output's (`parsing.py`). `repeated` is the share of 4-grams of tokens that
the same output had before, `heldout` that of the text that really follows these prompts.

With `--bundle DIR` every kind of plan of this bundle runs too: tokens per step and tokens/s.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parsing import parses

from specplan import api
from specplan.measure.device.probes import plain_plan
from specplan.measure.workbench import TokenPrompt, Workbench, chosen_prompts
from specplan.planner import load_problem
from specplan.runtime.generate import Completion, generate

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "examples/reference_models"
PROBLEM = ROOT / "examples/quickstart/problem.yaml"
PROMPTS = ROOT / "examples/prompts/functions.jsonl"
GRAM, BATCH = 4, 24


def repeated(outputs: Sequence[Sequence[int]]) -> float:
    """The share of the outputs' 4-grams that occurred earlier in the same output."""
    before = every = 0
    for tokens in outputs:
        grams = [tuple(tokens[i : i + GRAM]) for i in range(len(tokens) - GRAM + 1)]
        every += len(grams)
        before += len(grams) - len(set(grams))
    return before / max(every, 1)


def heldout(prompts: Sequence[Any]) -> list[str]:
    """What follows each prompt in its source, where the listed source is installed unchanged."""
    sys.path.insert(0, str(MODELS))
    corpus = importlib.import_module("recipe.corpus")
    listed = {file.path: file for file in corpus.read_manifest(MODELS / "corpus.json")}
    lines = map(json.loads, PROMPTS.read_text("utf-8").splitlines())
    sources = {line["text"]: line["source"] for line in lines}
    installed: dict[str, list[str]] = {}
    for source in {sources[prompt.text] for prompt in prompts}:
        file, path = listed[source], corpus.stdlib_root() / source
        same = path.exists() and corpus.hash_file(path) == file.sha256
        installed[source] = list(corpus.functions(corpus.read_text(file))) if same else []
    texts = []
    for start in (prompt.text for prompt in prompts):
        texts += [f[len(start) :] for f in installed[sources[start]] if f.startswith(start)][:1]
    return texts


def measured(
    bench: Workbench, prompts: Sequence[Any], temperature: float, top_p: float, tokens: int
) -> list[Completion]:
    """An output for each prompt; of one that occurs again, another one."""
    executable, done = bench.compile(plain_plan(temperature == 0.0)), list[Completion]()
    for first in range(0, len(prompts), BATCH):
        requests = [
            bench.request(
                TokenPrompt(prompt.id, tuple(bench.tokenizer.encode(prompt.text))),
                first + place,
                temperature=temperature,
                top_p=top_p,
                max_new_tokens=tokens,
                stop_tokens=bench.tokenizer.stop_tokens,
            )
            for place, prompt in enumerate(prompts[first : first + BATCH])
        ]
        done += generate(executable, requests, tokenizer=bench.tokenizer).completions
    return done


def rows(
    bench: Workbench,
    prompts: Sequence[Any],
    settings: Sequence[Sequence[float]],
    most: Sequence[int],
) -> Iterator[dict[str, Any]]:
    """A row per setting and length."""
    truth = [bench.tokenizer.encode(text) for text in heldout(prompts)]
    for temperature, top_p in settings:
        for tokens in most:
            done = measured(bench, prompts, temperature, top_p, tokens)
            good = sum(
                parses(p.text, one.text or "", ended=one.finish_reason == "stop")
                for p, one in zip(prompts, done, strict=True)
            )
            share = repeated([one.tokens for one in done])
            reference = repeated([text[:tokens] for text in truth])
            yield {
                "temperature": temperature,
                "top_p": top_p,
                "tokens": tokens,
                "outputs": len(done),
                "parse": good / len(done),
                "repeated": share,
                "heldout": reference,
                "heldout_texts": len(truth),
                "ratio": share / reference if reference else None,
                "texts": [one.text for one in done],
            }


def kinds(bundle: Path) -> list[dict[str, Any]]:
    """Tokens per step, speed and prediction of every kind of plan of a bundle."""
    result = api.bench(bundle, limit=12, repeats=1, kinds=True, stock=False)
    return [
        {
            "plan": line.name,
            "tokens_per_step": line.tokens_per_round,
            "tokens_per_second": line.tokens_per_second,
            "predicted": None if line.predicted is None else line.predicted.mean,
        }
        for line in result.lines
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", action="append", metavar="TEMPERATURE,TOP_P")
    parser.add_argument("--tokens", help="output lengths; default the problem's")
    parser.add_argument("--limit", type=int, help="most prompts")
    parser.add_argument("--samples", type=int, default=1, help="outputs of each prompt")
    parser.add_argument("--bundle", type=Path, help="run every kind of plan of it too")
    parser.add_argument("--json", action="store_true", help="with the texts")
    options = parser.parse_args()
    problem = load_problem(PROBLEM)
    bench, workload = Workbench(problem), problem.workload
    settings = [[float(x) for x in text.split(",")] for text in options.set or ()]
    prompts = [p for split in ("bench", "profile") for p in chosen_prompts(problem, split)]
    measured_rows = []
    for row in rows(
        bench,
        prompts[: options.limit] * options.samples,
        settings or [[workload.temperature, workload.top_p]],
        [int(n) for n in (options.tokens or str(bench.output_tokens)).split(",")],
    ):
        measured_rows.append(row)
        if not options.json:
            print(
                "temperature {temperature}, top_p {top_p}, {tokens} tokens: "
                "{parse:.0%} of {outputs} parse; repeated 4-grams {repeated:.1%}, "
                "{heldout:.1%} in {heldout_texts} held-out texts: {ratio:.2f} times".format_map(
                    row
                ),
                flush=True,
            )
    plans = kinds(options.bundle) if options.bundle else []
    if options.json:
        print(json.dumps({"settings": measured_rows, "kinds": plans}))
        return
    for plan in plans:
        print(
            f"{plan['tokens_per_step']:6.2f} tokens per step, {plan['tokens_per_second']:6.1f} "
            f"tokens/s: {plan['plan']}"
        )


if __name__ == "__main__":
    main()
