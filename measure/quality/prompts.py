"""The prompts that a quality limit is tested on, in two parts: to choose by, and to report on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from specplan.ir.errors import UsageError
from specplan.ir.files import name_of
from specplan.measure.workbench import BENCH, TokenPrompt, Workbench, chosen_prompts
from specplan.planner import Problem, Prompt, read_prompts

CALIBRATE, REPORT = "calibrate", "report"
"""Splits of a file of prompts."""
LEAST = 20
"""Fewer prompts than this bound nothing that a user would want to know."""


@dataclass(frozen=True)
class Parts:
    """Prompts as text and as tokens, those to calibrate on first.

    Attributes:
        texts: all prompts.
        tokens: the same as tokens.
        calibration: how many of them are calibrated on.
    """

    texts: tuple[Prompt, ...]
    tokens: tuple[TokenPrompt, ...]
    calibration: int

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Of the tokens of each part."""
        parts = self.tokens[: self.calibration], self.tokens[self.calibration :]
        return name_of(repr(parts[0])), name_of(repr(parts[1]))


def quality_prompts(problem: Problem) -> Sequence[Prompt]:
    """Those of the quality limit that are of the workload's task; left out, the bench split."""
    quality, task = problem.limits.quality, problem.workload.task
    if quality is None or quality.prompts is None:
        return chosen_prompts(problem, BENCH)
    return [one for one in read_prompts(quality.prompts) if not task or one.task in ("", task)]


def quality_parts(bench: Workbench) -> Parts:
    """The prompts of a problem's quality limit.

    Left out, they are the bench split of the workload's, since thresholds are ordered by what the
    profile split says. A file that marks no splits gives every other prompt to each part.

    Raises:
        UsageError: there are too few.
    """
    every = quality_prompts(bench.problem)
    first = [prompt for prompt in every if prompt.split == CALIBRATE]
    second = [prompt for prompt in every if prompt.split == REPORT]
    if not first or not second:
        first, second = [*every[::2]], [*every[1::2]]
    if min(len(first), len(second)) < LEAST:
        raise UsageError(
            f"{len(first)} prompts to calibrate on and {len(second)} to report on bound no loss; "
            f"each part needs at least {LEAST}",
            where="limits.quality.prompts",
            remedy="Give more prompts of the workload's task: 300 in each part show a loss of 5 %.",
        )
    chosen = (*first, *second)
    return Parts(chosen, tuple(map(bench.token_prompt, chosen)), len(first))
