"""Runs of bundles over groups of prompts, in this process or another environment."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.bundles.contest import problem_of
from specplan.bundles.writing import open_bundle

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.checks.side import Side
    from specplan.measure.bench.interleave import Run
    from specplan.measure.workbench import Workbench
    from specplan.planner.problem.schema import Problem
    from specplan.runtime.executable import Executable

OUTPUT_TOKENS = 32
"""Most tokens per prompt and run: short runs make many close pairs."""


@dataclass(frozen=True)
class Load:
    """The work of every run.

    Attributes:
        batch: prompts per run.
        output_tokens: tokens per prompt; None for those of the problem, at most 32.
        prompts: JSON Lines of prompts; None for those of the head's problem.
        limit: most prompts to use.
    """

    batch: int = 1
    output_tokens: int | None = None
    prompts: Path | None = None
    limit: int | None = None

    def problem(self, bundle: Bundle) -> Problem:
        """A bundle's problem with these prompts and outputs."""
        problem = problem_of(bundle, self.prompts)
        tokens = self.output_tokens or min(problem.workload.output_tokens or 128, OUTPUT_TOKENS)
        workload = problem.workload.model_copy(update={"output_tokens": tokens})
        return problem.model_copy(update={"workload": workload})


ONE = Load()
"""One prompt at a time."""


def opened(bundle: Bundle | Path | str) -> Bundle:
    """Open a bundle, and check that its models have not changed.

    Raises:
        UsageError: it is no bundle, a model has changed, or its problem is damaged.
    """
    checked = open_bundle(bundle)
    checked.check_models()
    return checked


def run_bundle(bench: Workbench, bundle: Bundle, load: Load) -> Run:
    """Runs of a bundle in this process, by its compiled rounds if it has some.

    Raises:
        NothingToCompareError: there are fewer prompts than a batch has.
        MissingCapabilityError: its compiled rounds do not run on this machine.
    """
    from specplan.backends.bundle_executable import open_executable
    from specplan.backends.machine import check_machine

    check_machine(bundle)
    return run_here(bench, open_executable(bundle, bench.models), load)


def run_here(bench: Workbench, executable: Executable, load: Load) -> Run:
    """Runs of a compiled plan in this process.

    Raises:
        NothingToCompareError: there are fewer prompts than a batch has.
    """
    from specplan.measure.bench.contenders import executable_timer
    from specplan.measure.bench.interleave import Turn
    from specplan.measure.workbench import BENCH, groups_of

    groups = groups_of(bench.prompts(BENCH)[: load.limit], load.batch)
    timer = executable_timer(bench, executable)

    def run(group: int) -> Turn:
        outcome = timer(groups[group])
        digest = hashlib.sha256(json.dumps(outcome.outputs).encode()).hexdigest()
        return Turn(outcome.seconds, sum(map(len, outcome.outputs)), digest)

    return run


def run_there(side: Side, bundle: Path, head: Problem, load: Load) -> Run:
    """Runs of a bundle in another environment, which opens it at once.

    Args:
        side: the environment.
        bundle: a folder that its version of specplan can read.
        head: the problem with the prompts, output tokens and seed.
        load: of every run.

    Raises:
        AskedError: it cannot open it.
        NothingToCompareError: there are fewer prompts than a batch has.
    """
    from specplan.measure.bench.interleave import Turn
    from specplan.measure.workbench import BENCH, chosen_prompts, groups_of

    texts = [prompt.text_alone for prompt in chosen_prompts(head, BENCH)][: load.limit]
    groups = groups_of(texts, load.batch)
    side.ask("open", bundle=str(bundle.resolve()))
    tokens, seed = head.workload.output_tokens, head.seed

    def run(group: int) -> Turn:
        prompts = list(groups[group])
        return Turn(**side.ask("run", prompts=prompts, output_tokens=tokens, seed=seed))

    return run


def count_groups(problem: Problem, load: Load) -> int:
    """The number of groups of prompts.

    Raises:
        NothingToCompareError: there are fewer prompts than a batch has.
        UsageError: there are no prompts at all.
    """
    from specplan.measure.workbench import BENCH, chosen_prompts, groups_of

    return len(groups_of(chosen_prompts(problem, BENCH)[: load.limit], load.batch))
