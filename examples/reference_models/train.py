#!/usr/bin/env python3
"""Make the reference pair: ``train.py STAGE``, or ``train.py all``.

Reproduces, from a seed, the tokenizer, both checkpoints, the prompts and the model card. Every
stage can be run alone, may be killed at any moment, and goes on where it was. On two CPU cores all
of it takes about an hour and a half. Working files go to ``.work/reference_models`` under the
repository.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from recipe import loop, nets, stages

STAGES = {
    "tokenizer": "stages.tokenizer_stage",
    "target": "stages.target_stage",
    "draft": "draft.stage",
    "target_functions": "functions.target_stage",
    "draft_functions": "functions.draft_stage",
    "prompts": "prompts.stage",
    "card": "card.stage",
}
"""Each stage's function, in the order in which ``all`` runs them."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("stage", choices=(*STAGES, "all"))
    parser.add_argument("--steps", type=int, help="training steps (of every stage that trains)")
    parser.add_argument("--minutes", type=float, help="checkpoint and leave after so long")
    parser.add_argument("--stop-after", type=int, help="checkpoint and leave after this step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=float, default=120.0, help="seconds")
    parser.add_argument("--export-every", type=float, default=300.0, help="seconds")
    parser.add_argument("--out", type=Path, help="folder of target/, draft/ and corpus.json")
    parser.add_argument("--prompts", type=Path, help="folder of the prompt files")
    parser.add_argument("--work", type=Path, help="folder of checkpoints and caches")
    parser.add_argument("--other-corpus", action="store_true", help="accept another library text")
    parser.add_argument("--tiny", action="store_true", help="toy sizes, for tests")
    return parser.parse_args(arguments)


def plan_of(options: argparse.Namespace) -> stages.Plan:
    """The plan the options ask for."""
    plan = stages.Plan(
        seed=options.seed,
        stop_after=options.stop_after,
        minutes=options.minutes,
        save_every_s=options.save_every,
        export_every_s=options.export_every,
        other_corpus=options.other_corpus,
    )
    if options.tiny:
        plan = stages.tiny(plan)
    for name in ("out", "prompts", "work"):
        if getattr(options, name) is not None:
            setattr(plan, name, getattr(options, name))
    if options.steps is not None:
        plan.target_steps = plan.draft_steps = options.steps
        plan.target_functions_steps = plan.draft_functions_steps = options.steps
    return plan


def run(stage: str, plan: stages.Plan) -> None:
    """Run one stage (its module is imported when it is reached)."""
    module, function = STAGES[stage].split(".")
    getattr(importlib.import_module(f"recipe.{module}"), function)(plan)


def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    options = parse(arguments)
    nets.keep_memory()
    loop.use_threads(options.threads)
    plan = plan_of(options)
    for stage in STAGES if options.stage == "all" else (options.stage,):
        try:
            run(stage, plan)
        except stages.CorpusDiffers as error:
            plan.console.print(f"[red]{error}[/]", highlight=False)
            return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
