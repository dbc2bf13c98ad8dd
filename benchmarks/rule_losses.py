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
from specplan.measure.acceptance.teacher import text_logits
from specplan.measure.machine import versions
from specplan.runtime.acceptance import RULES, DraftedTree
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, probabilities
from specplan.runtime.tokenizer import load_tokenizer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PROMPTS, PLACES, FIRST = 8, 8, 24
"""Prompts of each task, places of each prompt, and the first of them."""

TEMPERATURE, TOP_K = 1.0, 50
SETTINGS = SamplingSettings.of([Request(prompt_tokens=(0,), temperature=TEMPERATURE, top_k=TOP_K)])

FIRST_CHOICE = [rule.name for rule in LOSSY if rule.name not in ("lenient", "span", "all")]
"""Rules whose own file says which token passes, and that emit the first choice where none does."""

Outcome = tuple[Tensor, Tensor]
"""The law of the emitted token `[V]`, and the chance to accept."""


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


def mixed(q: Tensor, emitted: Tensor) -> Outcome:
    """A rule that emits this law in place of p."""
    return emitted, torch.minimum(emitted, q).sum()


def lenient(p: Tensor, q: Tensor, lenience: float = 0.5) -> Outcome:
    """min(p / l, q), and norm((p - q)+) where it rejects."""
    accepted = torch.minimum(p / lenience, q)
    left = (p - q).clamp(min=0.0)
    return accepted + (1.0 - accepted.sum()) * left / left.sum(), accepted.sum()


def span(p: Tensor, q: Tensor, strictness: float = 0.5) -> Outcome:
    """Q min(1, p / (g max p)), and p where it rejects."""
    accepted = q * (p / (strictness * p.max())).clamp(max=1.0)
    return accepted + (1.0 - accepted.sum()) * p, accepted.sum()


def passing(rule: str, logits: Tensor, q: Tensor) -> Outcome:
    """A rule that accepts a token or not, and else emits the first choice."""
    drafted = q.nonzero()
    row = top_probs(logits) if RULES[rule].TARGET == "probabilities" else logits
    drawn_from = q.expand(len(drafted), 1, len(q))
    tree = DraftedTree(drafted, (-1,), probs=drawn_from, probs_index=(0,))
    judged = RULES[rule].accept_vectorised(tree, row.expand(len(drafted), 2, len(row)))
    emitted = torch.zeros_like(q)
    emitted[drafted[:, 0]] = q[drafted[:, 0]] * (judged.accepted > 0)
    accepted = emitted.sum()
    emitted[int(logits.argmax())] += 1.0 - accepted
    return emitted, accepted


def measured() -> dict[str, Any]:
    """What each rule loses, and how often it accepts."""
    lost: dict[str, list[tuple[float, float]]] = {}
    for logits, draft in places():
        p, q = top_probs(logits), top_probs(draft)
        outcomes = {
            "token": mixed(q, p),
            "lenient": lenient(p, q),
            "span": span(p, q),
            **{rule: passing(rule, logits, q) for rule in FIRST_CHOICE},
            "all": (q, torch.ones(())),
        }
        for rule, (emitted, accepted) in outcomes.items():
            variation = float((emitted - p).abs().sum()) / 2
            lost.setdefault(rule, []).append((variation, float(accepted)))
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
