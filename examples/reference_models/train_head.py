r"""How the shipped head was trained: EAGLE-1 for the reference target, on Python's own library.

    python examples/training/texts.py --out .work/training/whole.jsonl --count 100000 --whole
    python examples/reference_models/train_head.py .work/training/whole.jsonl .work/heads/eagle
    specplan train examples/quickstart/problem.yaml --device cpu-generic --stage hand-over \
        --drafter eagle --out .work/heads/eagle --set workload.temperature=0 \
        --set workload.output_tokens=96 --set workload.task=code \
        --set workload.prompts=../prompts/code.jsonl

About half an hour on one core. It may be killed at any moment and goes on where it was. It does as
`specplan train --stage train --as-is --rows 2` does, but learns only three tokens ahead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from specplan.problems import as_problem
from specplan.progress import terminal_progress
from specplan.training.session import Session

PROBLEM = Path(__file__).resolve().parents[1] / "quickstart/problem.yaml"
STEPS = 2400


def main(arguments: Sequence[str]) -> None:
    """Train it on a file of texts, into a folder."""
    prompts, out = map(Path, arguments)
    problem = as_problem(PROBLEM)
    workload = problem.workload.model_copy(update={"temperature": 1.0, "top_p": 1.0})
    changes = {"workload": workload, "device": "cpu-generic"}
    recipe = {"learning_rate": 0.004, "rows": 2, "unroll": 3, "warmup": 60}
    with terminal_progress() as progress:
        session = Session.of(
            problem.model_copy(update=changes), ["eagle"], prompts, progress,
            loss="ce", answers=False, **recipe,
        )  # fmt: skip
        trained = session.train("eagle", out, STEPS)
    print(f"{out}: {trained.steps} steps, loss {trained.losses[-1]:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
