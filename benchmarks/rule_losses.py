"""What do the lossy rules lose on the reference pair?

    python benchmarks/rule_losses.py [--json]

At places of held-out prompts, at temperature 1 and top-k 50, one token is drafted by the draft
model's law q and judged against the target's law p. Printed per rule, at default parameters,
exactly for each place and averaged over them: the total variation between the law of the token that
is emitted and p, and the chance that the drafted token is accepted. `token` loses nothing and
stands for comparison. docs/rules.md shows benchmarks/results/rule_losses.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specplan.ir.tables.acceptance import LOSSY
from specplan.ir.values import Entry
from specplan.measure.acceptance.teacher import text_logits
from specplan.measure.machine import versions
from specplan.runtime.acceptance._emitted import accepted_and_rest
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, probabilities
from specplan.runtime.tokenizer import load_tokenizer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PROMPTS, PLACES, FIRST = 8, 8, 24
"""Prompts of each task, places of each prompt, and the first of them."""

TEMPERATURE, TOP_K = 1.0, 50
SETTINGS = SamplingSettings.of([Request(prompt_tokens=(0,), temperature=TEMPERATURE, top_k=TOP_K)])


def places() -> Iterator[tuple[Tensor, Tensor]]:
    """Logits `[V]` of the target and of the draft model at each place."""
    folder = EXAMPLES / "reference_models"
    models = [load_model(folder / name, dtype="float32") for name in ("target", "draft")]
    tokenizer = load_tokenizer(folder / "target")
    for task in ("code", "prose"):
        lines = (EXAMPLES / "prompts" / f"{task}.jsonl").read_text().splitlines()
        for line in lines[:: len(lines) // PROMPTS][:PROMPTS]:
            text = tokenizer.encode(json.loads(line)["text"])[: FIRST + PLACES]
            rows = [text_logits(model, text, FIRST).double() for model in models]
            yield from zip(*rows, strict=True)


def top_probs(logits: Tensor) -> Tensor:
    """The law `[V]` of logits `[V]` at temperature 1 and top-k 50."""
    return probabilities(logits[None, None], SETTINGS)[0, 0]


def measured() -> dict[str, Any]:
    """What each rule loses, and how often it accepts."""
    lost: dict[str, list[tuple[float, float]]] = {}
    for logits, draft in places():
        p, q = top_probs(logits), top_probs(draft)
        lost.setdefault("token", []).append((0.0, float(torch.minimum(p, q).sum())))
        for rule in (Entry(one.name) for one in LOSSY):
            accepted, rest = accepted_and_rest(rule, logits, p, q)
            chance = accepted.sum()
            variation = float((accepted + (1.0 - chance) * rest - p).abs().sum()) / 2
            lost.setdefault(rule.name, []).append((variation, float(chance)))
    means = {
        rule: [sum(column) / len(pairs) for column in zip(*pairs, strict=True)]
        for rule, pairs in lost.items()
    }
    return {
        "date": date.today().isoformat(),
        "places": len(lost["token"]),
        "temperature": TEMPERATURE,
        "top_k": TOP_K,
        "rules": [
            {"rule": rule, "total_variation": round(variation, 6), "accepted": round(accepted, 6)}
            for rule, (variation, accepted) in means.items()
        ],
        "versions": versions(),
    }


def main() -> None:
    """Print a row per rule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    losses = measured()
    if options.json:
        print(json.dumps(losses, indent=2))
        return
    print(f"{losses['places']} places\n\n| rule | loses | accepts |\n|---|---|---|")
    for each in losses["rules"]:
        print("| `{rule}` | {total_variation:.3f} | {accepted:.3f} |".format_map(each))


if __name__ == "__main__":
    main()
