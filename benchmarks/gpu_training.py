"""Training an EAGLE-3 head of a Llama-8B-shaped target on one GPU: predicted, and measured.

    python benchmarks/gpu_training.py --out training.json [--steps 12] [--tokens 512]

Weights and texts are random: the time of a step does not depend on them. The target's hidden states
are computed in each step. Predicted is what `specplan train --stage pays` says of as many texts.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from gpu_round import HEAD, READ, random_model, shapes_of
from gpu_timing import LLAMA_8B, device_called

from specplan.ir.files import write_json_atomic
from specplan.planner.training.costs import training_seconds
from specplan.planner.training.families import Recipe as Budget
from specplan.training.learning.packing import Text
from specplan.training.recipe import Recipe
from specplan.training.trainer import train_head

WARM_UP = 3
"""Steps before those that are timed."""


def predicted(device: Any, texts: int, length: int, unroll: int) -> float | None:
    """Seconds that planning expects of as many texts; None without a data sheet."""
    if device is None:
        return None
    shapes = shapes_of()
    budget = Budget(samples=texts, epochs=1, unroll=unroll, source="")
    return training_seconds(device, shapes["target"], shapes["head"], budget, length)


def measured(device: torch.device, tokens: int, steps: int, recipe: Recipe) -> dict[str, Any]:
    """Seconds of a step, tokens of a second, and the most memory."""
    target, cuda = random_model(LLAMA_8B, "target", device, torch.bfloat16), device.type == "cuda"
    made = torch.Generator().manual_seed(0)
    ids = torch.randint(target.vocab_size, (2 * recipe.rows, tokens), generator=made)
    texts = [Text(tuple(row), 1) for row in ids.tolist()]
    config = {**HEAD, "eagle_aux_hidden_state_layer_ids": list(READ)}
    moments: list[float] = []

    def watch(description: str, done: int, total: int) -> None:
        if cuda:
            torch.cuda.synchronize()
        moments.append(perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "head"
        losses = train_head(config, target, texts, steps, place, recipe, watch).losses
    seconds = median(b - a for a, b in zip(moments[WARM_UP:], moments[WARM_UP + 1 :], strict=False))
    return {
        "seconds_per_step": seconds, "tokens_per_second": recipe.rows * tokens / seconds,
        "losses": [losses[0], losses[-1]],
        "most_bytes": torch.cuda.max_memory_allocated() if cuda else None,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=512, help="of a row")
    parser.add_argument("--rows", type=int, default=8)
    options = parser.parse_args()
    recipe = Recipe(rows=options.rows, row_tokens=options.tokens)
    name = torch.cuda.get_device_name()
    row = measured(torch.device("cuda"), options.tokens, options.steps, recipe)
    foreseen = predicted(device_called(name), options.rows, options.tokens, recipe.unroll)
    document = {"device": name, "torch": torch.__version__, "rows": options.rows,
                "tokens": options.tokens, "predicted_seconds": foreseen, **row}  # fmt: skip
    write_json_atomic(options.out, document)
    expected = "" if foreseen is None else f", predicted {foreseen:.2f} s"
    print(
        f"EAGLE-3 head of an 8B target, {options.rows} texts of {options.tokens} tokens: a step "
        f"{row['seconds_per_step']:.2f} s{expected}, {row['tokens_per_second']:.0f} tokens/s, "
        f"{row['most_bytes'] / 1e9:.1f} GB, loss {row['losses'][0]:.2f} to {row['losses'][1]:.2f}"
    )


if __name__ == "__main__":
    main()
