"""Time the steps of head training on this machine, of this checkout and of others.

    python benchmarks/training.py [--base ../other/src] [--family medusa eagle3] [--json]

Heads of the reference target are trained on texts of random tokens: prompts of 160 tokens and
answers of 64, as many texts a second as `train_head` gets through. Checkouts take turns, each turn
in a process of its own; its first steps are not timed. What is compared is answer tokens per second
of one thread's processor time, as checkouts may take other numbers of texts in a step, and the
machine may do other work; steps per second are printed beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = REPOSITORY / "examples/reference_models/target"
PROMPT, ANSWER, TEXTS = 160, 64, 32


def steps_of(family: str, steps: int, first: int) -> dict[str, float]:
    """Seconds of a step of the checkout that runs this, and the answer tokens in it."""
    import torch

    from specplan.cost_models.models.new_heads import eagle3_config, medusa_config
    from specplan.runtime.models.loading import load_model
    from specplan.training import trainer

    torch.set_num_threads(1)
    target = load_model(TARGET, dtype="float32")
    config: Any = {"medusa": medusa_config, "eagle3": eagle3_config}[family]
    read = json.loads((TARGET / "config.json").read_text())
    drawn = torch.randint(3, 3000, (TEXTS, PROMPT + ANSWER), generator=torch.Generator())
    names = vars(trainer)  # where checkouts have them has moved
    texts = [names["Text"](tuple(row), PROMPT) for row in drawn.tolist()]
    times = [process_time()]

    def progress(description: str, done: int, total: int) -> None:
        times.append(process_time())

    recipe = names["Recipe"](save_every=10**9)
    with TemporaryDirectory() as folder:
        trainer.train_head(
            config(read, "target"), target, texts, first + steps, Path(folder) / "head", recipe,
            progress,
        )  # fmt: skip
    took = [after - before for before, after in pairwise(times)]
    count = getattr(recipe, "batch", None)
    if count is None:
        count = recipe.rows * (recipe.row_tokens // (PROMPT + ANSWER))
    return {"seconds": median(took[first : first + steps]), "tokens": float(ANSWER * count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, nargs="*", default=[], help="src of other checkouts")
    parser.add_argument("--family", nargs="+", default=["medusa", "eagle3"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--first", type=int, default=2, help="steps that are not timed")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(steps_of(options.here, options.steps, options.first)))
        return
    rows = []
    sources = [REPOSITORY / "src", *(path.resolve() for path in options.base)]
    for family in options.family:
        runs: dict[Path, list[dict[str, float]]] = {source: [] for source in sources}
        for _ in range(options.turns):
            for source in sources:
                command = [sys.executable, __file__, "--here", family]
                more = ["--steps", str(options.steps), "--first", str(options.first)]
                done = subprocess.run(
                    [*command, *more], check=True, capture_output=True, text=True,
                    env={**os.environ, "PYTHONPATH": str(source)},
                )  # fmt: skip
                runs[source].append(json.loads(done.stdout.splitlines()[-1]))
        for source, measured in runs.items():
            seconds = median(run["seconds"] for run in measured)
            row = {"family": family, "source": str(source), "steps_per_second": 1 / seconds}
            rows.append(row | {"tokens_per_second": measured[0]["tokens"] / seconds})
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(
            f"{row['family']:8} {row['steps_per_second']:7.2f} steps/s "
            f"{row['tokens_per_second']:8.0f} answer tokens/s  {row['source']}"
        )


if __name__ == "__main__":
    main()
