"""What a head accepts on held-out texts, and what the planner makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.heads import depth_of, head_ranks
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import Progress
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import Problem, acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.problem.schema import DraftModel
from specplan.planner.search.what_if import best_gain
from specplan.planner.training.curves import LEAST_POINTS, Evaluation
from specplan.planner.training.stopping import Speed, StopRule, Verdict, verdict
from specplan.runtime.models.heads.drafter import Drafter

RANKS = 4
"""Choices of a head that are told apart."""
MOST_TEXTS = 48
"""Held-out texts that a head is evaluated on."""
MOST_DEPTH = 6
"""Positions that are evaluated."""


def unseen_texts(bench: Workbench, progress: Progress, most: int = MOST_TEXTS) -> list[TracedText]:
    """The target's own texts after the problem's prompts on which acceptance is measured.

    Raises:
        UsageError: the problem has no such prompts.
    """
    prompts = bench.prompts(PROFILE)[:most]
    outputs, target = continue_prompts(bench, prompts, progress), bench.models["target"]
    return [
        TracedText(index, prompt.id, request_of(bench, prompt, index), output, target)
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        if len(output) > 1
    ]


def evaluation(head: Drafter, texts: Sequence[TracedText], steps: int) -> Evaluation:
    """Rounds from every token of every text, counted by position: drafts run freely.

    A token outside of a reduced vocabulary counts as rejected.
    """
    depth = min(depth_of(head), MOST_DEPTH)
    reached, accepted = np.zeros(depth, dtype=int), np.zeros((depth, RANKS), dtype=int)
    for text in texts:
        ranks = head_ranks([head], text, depth, RANKS)
        for root in range(len(ranks) - 1):
            for step, row in enumerate(ranks[root + 1 : root + 1 + depth]):
                reached[step] += 1
                if row[step] >= 0:
                    accepted[step, row[step]] += 1
                if row[step] != 0:
                    break
    rows = tuple(tuple(int(one) for one in row) for row in accepted)
    return Evaluation(steps, tuple(int(one) for one in reached), rows)


def with_head(problem: Problem, family: str, folder: Path) -> Problem:
    """The problem with one drafter, a head, whose acceptance need not be measured."""
    target = problem.models.target
    draft = DraftModel(name=family, path=folder.resolve(), dtype=target.dtype)
    models = problem.models.model_copy(update={"drafts": (draft,)})
    changes: dict[str, Any] = {"models": models, "acceptance": {family: "prior"}}
    return problem.model_copy(update=changes)


def planned_speed(facts: ProblemFacts, family: str) -> Speed:
    """Speed of the best plan with a head over no speculation, from its hazards.

    Args:
        facts: of a problem with this head (`with_head`).
        family: its name there.
    """
    drafter = Model(family)
    key = acceptance_key(facts.problem, facts.shapes, drafter)

    def speed(hazards: Sequence[Sequence[float]]) -> float:
        profile = AcceptanceProfile.from_hazards(hazards, key=key)
        return best_gain(replace(facts, profiles={drafter: profile}), drafter)

    return speed


@dataclass
class HeldOut:
    """Evaluates a head during its training on held-out texts, and says when to stop.

    Attributes:
        texts: held out.
        rule: what training costs.
        speed_of: prices acceptance; called once the checkpoint is there, so that this machine can
            time the head.
        points: steps after which it is evaluated; none for after every interval of the rule.
    """

    texts: Sequence[TracedText]
    rule: StopRule
    speed_of: Callable[[], Speed]
    points: frozenset[int] = frozenset()
    _speed: Speed | None = None

    def due(self, steps: int) -> bool:
        """See `specplan.training.trainer.HeadEvaluator`."""
        return steps in self.points if self.points else steps % self.rule.interval == 0

    def look(self, head: Drafter, steps: int) -> Evaluation:
        """See `specplan.training.trainer.HeadEvaluator`."""
        return evaluation(head, self.texts, steps)

    def decide(self, evaluations: Sequence[Evaluation], save: Callable[[], None]) -> Verdict:
        """See `specplan.training.trainer.HeadEvaluator`."""
        if len(evaluations) < LEAST_POINTS or not self.rule.worth:
            return self.rule.go_on(evaluations[-1].steps)
        if self._speed is None:
            save()
            self._speed = self.speed_of()
        return verdict(evaluations, self.rule, self._speed)
