"""What the rule that ends a training saves, and what it loses.

    python benchmarks/stop_rule.py [--work DIR] [--only FAMILY ...] [--threads 1]
    python benchmarks/stop_rule.py --page

Heads of the reference target are trained on pieces of Python's library as they stand, with budgets
that are written down here (`BUDGETS`), and the rule of `specplan train --worth 0.01`. Where it ends
a training, its checkpoint of that step is copied, and the copy goes on without the rule to the end
of the budget: both are one training up to there. Both heads are then evaluated on prompts that
neither the training nor the rule has seen, and the planner prices what was accepted: the same
problem, a data sheet's times, greedy code. No time is measured, so a busy machine does.

The first command writes benchmarks/results/stop_rule.json, also with some families done, and may be
killed: it goes on from the last checkpoint. The second puts the results into docs/train.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from reference_problem import ROOT, pair_problem, pieces_of_python
from reporting import every, write_between

from specplan.ir.files import read_json, write_json_atomic
from specplan.planner.training.curves import Evaluation
from specplan.planner.training.stopping import WORTH, Speed, Verdict

RESULTS = ROOT / "benchmarks/results/stop_rule.json"
PAGE = ROOT / "docs/train.md"
START, END = "<!-- stop rule:start -->\n", "<!-- stop rule:end -->"
tell = every(20)
OUTPUT_TOKENS = 96
"""Of each request of the workload that heads are priced for."""
PIECES = 800
"""Of Python's library, about 400 tokens each: what a small service logs in a day."""
BUDGETS: Mapping[str, int] = {
    "medusa": 3730,
    "eagle": 3730,
    "mlp_speculator": 3730,
    "kangaroo": 3730,
}
"""Steps of two rows of up to 512 tokens: ten passes over the pieces (746 rows), as SpecForge and
DeepSpec train by default."""
SETTINGS: Mapping[str, Any] = {"loss": "ce", "answers": False, "warmup": 60}
UNROLLS: Mapping[str, int] = {"eagle": 1}
"""As EAGLE-1 is published (arXiv 2401.15077); other heads learn all that they draft."""
TEXTS = 120
"""Held-out prompts that heads are compared on."""
DRAWS = 100
"""Of these prompts, for the interval of a loss."""


def problem_of(work: Path) -> dict[str, Any]:
    """Greedy code on the reference target, priced by a data sheet."""
    return pair_problem(work, {}, "code", OUTPUT_TOKENS)


@dataclass
class Copying:
    """Copies a training's checkpoint at the step after which the rule ends it.

    Attributes:
        rule: that judges.
        folder: of the training.
        copy: of the checkpoint.
    """

    rule: Any
    folder: Path
    copy: Path

    def due(self, steps: int) -> bool:
        """See `specplan.training.trainer.Evaluator`."""
        return bool(self.rule.due(steps))

    def look(self, drafter: Any, steps: int) -> Evaluation:
        """See `specplan.training.trainer.Evaluator`."""
        seen: Evaluation = self.rule.look(drafter, steps)
        tell(f"{self.folder.parent.name}: {steps} steps accept {seen.rates.round(3)}", 1, 1)
        return seen

    def decide(self, evaluations: Sequence[Evaluation], save: Callable[[], None]) -> Verdict:
        """See `specplan.training.trainer.Evaluator`."""
        verdict: Verdict = self.rule.decide(evaluations, save)
        tell(f"{self.folder.parent.name}: {verdict}", 1, 1)
        if verdict.stop:
            save()
            part = self.copy.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(self.folder, part)
            part.rename(self.copy)
        return verdict


def measured(family: str, work: Path) -> dict[str, Any]:
    """A training that the rule may end, and the whole one."""
    from specplan.measure.workbench import BENCH
    from specplan.training.evaluating import evaluation, unseen_texts
    from specplan.training.session import Session

    budget, folder = BUDGETS[family], work / family
    ended, whole = folder / "ended", folder / "whole"
    if whole.exists() and not read_json(ended / "training.json", "a training")["stopped"]:
        shutil.rmtree(folder)  # killed between the copy and the next checkpoint: the copy is late
    settings = {**SETTINGS, "unroll": UNROLLS.get(family)}
    session = Session.of(
        problem_of(work), [family], pieces_of_python(work, PIECES), tell, **settings
    )
    judge = Copying(session.judge(family, ended, budget, WORTH), ended, whole)
    early = session.train(family, ended, budget, judge=judge)
    late = session.train(family, whole, budget) if whole.exists() else early
    texts = unseen_texts(session.bench, tell, TEXTS, BENCH)
    seen = [[evaluation(one.drafter, [text], one.steps) for text in texts] for one in (early, late)]
    return {
        "family": family,
        "budget": budget,
        "ended": next((one["steps"] for one in early.verdicts if one["stop"]), None),
        "steps": early.steps,
        "saved": 1.0 - early.steps / budget,
        **compared(seen[0], seen[1], session.speed(family, ended)),
        "verdicts": list(early.verdicts),
        "evaluations": [
            {"steps": one.steps, "rates": [float(rate) for rate in one.rates.round(4)]}
            for one in early.evaluations
        ],
    }


def compared(
    early: Sequence[Evaluation], late: Sequence[Evaluation], speed: Speed
) -> dict[str, Any]:
    """What two heads accept of the same texts, and the planned speed that the first one loses.

    The 90 % interval is over draws of the texts.
    """
    both = [added(early), added(late)]
    speeds = [planned(one, speed) for one in both]
    rng, lost = np.random.default_rng(0), list[float]()
    for _ in range(DRAWS):
        drawn = rng.integers(len(early), size=len(early))
        first, second = (planned(added([one[i] for i in drawn]), speed) for one in (early, late))
        lost.append(1.0 - first / second)
    low, high = np.quantile(lost, (0.05, 0.95))
    return {
        "rates": [float(rate) for rate in both[0].rates.round(4)],
        "whole_rates": [float(rate) for rate in both[1].rates.round(4)],
        "speed": speeds[0],
        "whole_speed": speeds[1],
        "loss": 1.0 - speeds[0] / speeds[1],
        "low": float(low),
        "high": float(high),
    }


def added(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The counts of several texts together."""
    reached = np.sum([one.reached for one in evaluations], 0).tolist()
    accepted = np.sum([one.accepted for one in evaluations], 0).tolist()
    return Evaluation(evaluations[0].steps, tuple(reached), tuple(map(tuple, accepted)))


def planned(seen: Evaluation, speed: Speed) -> float:
    """Planned speed over no speculation from what was accepted."""
    return speed(seen.hazards(seen.rates))


def section(data: Mapping[str, Any]) -> str:
    """The results as a part of docs/train.md."""
    lines = [
        "| head | budget | the rule ends at | steps run | fewer | planned speed, whole budget | "
        "planned speed, ended | loss (90 % interval) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in data["rows"]:
        loss, low, high = (f"{100 * row[name]:.1f}" for name in ("loss", "low", "high"))
        lines.append(
            f"| `{row['family']}` | {row['budget']:,} | {row['ended'] or '-'} | {row['steps']:,} | "
            f"{100 * row['saved']:.0f} % | {row['whole_speed']:.3f}x | {row['speed']:.3f}x | "
            f"{loss} % ({low} to {high}) |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / ".work/stop_rule")
    parser.add_argument("--only", nargs="+", default=list(BUDGETS), choices=list(BUDGETS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="write docs/train.md, nothing else")
    options = parser.parse_args()
    if not options.page:
        import torch

        from specplan.measure.machine import hardware_name, versions

        torch.set_num_threads(options.threads)
        work = options.work.resolve()
        for family in options.only:
            stored = work / f"{family}.json"
            if not stored.is_file():
                write_json_atomic(stored, measured(family, work))
        rows = [
            json.loads(stored.read_text())
            for family in BUDGETS
            if (stored := work / f"{family}.json").is_file()
        ]
        write_json_atomic(
            RESULTS,
            {
                "date": date.today().isoformat(),
                "pieces": PIECES,
                "texts": TEXTS,
                "worth": WORTH,
                "rows": rows,
                "hardware": hardware_name(),
                "versions": versions(),
            },
        )
        print(section({"rows": rows}))
        return
    known = read_json(RESULTS, "results of the stop rule")
    write_between(PAGE, START, section(known), END)


if __name__ == "__main__":
    main()
