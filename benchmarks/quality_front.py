"""Speed against loss on the quickstart: what settings that change its output gain and lose.

    python benchmarks/quality_front.py PROMPTS.jsonl [--split 300,107] [--work DIR]
        [--set KEY=VALUE] [--json]

PROMPTS are those of `quality_prompts.py`: half of them choose the settings that keep the limit, the
other half give the stated bounds. `--split` takes fewer: the first of one half, and so many that
are spread over the other. The problem is the quickstart's with
`limits.quality: {measure: outputs_differ, at_most: 0.05, risk: 0.05}`, the draft model, lookups and
the methods by which tokens leave the target early.

The times of plans are measured on this machine, which has to be idle for it; `--set
device=cpu-generic` takes those of a data sheet. Losses are those of the outputs alone, whatever
the device.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from specplan.gathering import find
from specplan.ir.files import write_atomic
from specplan.planner.answer.quality import front_rows
from specplan.planner.problem.loading import problem_from_flags
from specplan.planner.quality.front import quality_data
from specplan.progress import terminal_progress

ROOT = Path(__file__).resolve().parents[1]
METHODS = ["draft_model", "prompt_lookup", "confident_exit", "agreeing_exit"]


def measured(prompts: Path, work: Path, changes: list[str]) -> dict[str, Any]:
    """The front of the quickstart's problem, and what measuring it took."""
    quality = {
        "measure": "outputs_differ",
        "at_most": 0.05,
        "risk": 0.05,
        "prompts": str(prompts.resolve()),
    }
    sets = [
        f"limits.quality={json.dumps(quality)}",
        f"methods={json.dumps(METHODS)}",
        f"profiles={work.resolve() / 'profiles'}",
        *changes,
    ]
    problem = problem_from_flags(ROOT / "examples/quickstart/problem.yaml", {}, sets)
    start, used = time.perf_counter(), time.process_time()
    with terminal_progress() as progress:
        result = find(problem, progress)
    spent = time.perf_counter() - start, time.process_time() - used
    print("{:.0f} s, {:.0f} s of CPU".format(*spent), file=sys.stderr)
    data = quality_data(result.facts, result.candidates, result.plain, result.chosen)
    assert data is not None, "there is a limit"
    return {
        **data,
        "chosen": result.chosen.words,
        "chosen_method": result.chosen.method,
        "prompts": len(prompts.read_text("utf-8").splitlines()),
        "device": problem.device,
    }


def divided(prompts: Path, work: Path, calibrated: int, reported: int) -> Path:
    """A file of fewer prompts, which says of each what it is for."""
    rows = [json.loads(line) for line in prompts.read_text("utf-8").splitlines()]
    first, second = rows[::2][:calibrated], rows[1::2]
    second = second[:: -(-len(second) // reported)][:reported]
    marked = [one | {"split": "calibrate"} for one in first]
    marked += [one | {"split": "report"} for one in second]
    path = work / "prompts.jsonl"
    write_atomic(path, "".join(json.dumps(one) + "\n" for one in marked))
    return path


def table(data: dict[str, Any]) -> str:
    """The front as a table in Markdown."""
    heads, rows = front_rows(data)
    lines = [heads, tuple("---:" if one.startswith(">") else "---" for one in heads), *rows]
    return "\n".join(f"| {' | '.join(cell.lstrip('>') for cell in line)} |" for line in lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--split", metavar="CALIBRATE,REPORT", help="prompts of each part")
    parser.add_argument("--work", type=Path, default=ROOT / ".work/quality")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    prompts = options.prompts
    if options.split:
        prompts = divided(prompts, options.work, *map(int, options.split.split(",")))
    data = measured(prompts, options.work, options.set)
    print(json.dumps(data, indent=1) if options.json else table(data))


if __name__ == "__main__":
    main()
