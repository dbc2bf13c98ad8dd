"""Prompts to calibrate a quality limit on: starts of held-out functions of the reference corpus.

    python benchmarks/quality_prompts.py OUT.jsonl [--count 640]

The prompts of the task `functions` are 96 heads with docstrings. A loss of 5 % takes 300 to show
and 300 to report on, so that here every function of a held-out module counts, cut after the
statement that ends nearest to 64 tokens. None shares a window of 64 characters with the trained
text, with another, or with the prompts of the task.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "examples/reference_models"
SHORTEST, LONGEST, LEFT, AIM = 16, 100, 24, 64


def starts(function: str) -> list[str]:
    """Its text up to the end of each statement of its body."""
    tree = ast.parse(function)
    lines = function.split("\n")
    body = getattr(tree.body[0], "body", [])
    return ["\n".join(lines[: node.end_lineno]) + "\n" for node in body]


def prompts(count: int) -> list[dict[str, Any]]:
    """Prompts, evenly out of all held-out modules, as lines of a prompts file."""
    sys.path.insert(0, str(MODELS))
    corpus, recipe, bpe = (
        importlib.import_module(f"recipe.{name}") for name in ("corpus", "prompts", "bpe")
    )
    tokenizer = bpe.load_tokenizer(MODELS / "target")

    def size(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    files = corpus.read_manifest(MODELS / "corpus.json")
    candidates = []
    for file in files:
        if file.split != "heldout" or file.section == "topics":
            continue
        for function in corpus.functions(corpus.read_text(file)):
            whole = size(function)
            cuts = {size(text): text for text in starts(function)}
            fitting = [n for n in cuts if SHORTEST <= n <= min(LONGEST, whole - LEFT)]
            if fitting:
                best = min(fitting, key=lambda n: abs(n - AIM))
                candidates.append(recipe.Candidate(file.path, cuts[best], best))
    listed = (ROOT / "examples/prompts/functions.jsonl").read_text("utf-8").splitlines()
    own = [json.loads(line)["text"] for line in listed]
    unseen = recipe.unseen(candidates, [*recipe.train_texts(files), *own], set())
    step = max(1, len(unseen) // count)
    return [
        {"id": f"quality-{n:03d}", "task": "functions", "source": one.source, "text": one.text}
        for n, one in enumerate(unseen[::step][:count])
    ]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=640)
    options = parser.parse_args()
    rows = prompts(options.count)
    options.out.write_text("\n".join(json.dumps(row) for row in rows) + "\n", "utf-8")
    print(f"{len(rows)} prompts")


if __name__ == "__main__":
    main()
