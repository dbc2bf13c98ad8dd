"""What of a drafter is accepted on held-out texts, and what the planner makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.measure.acceptance.continuations import traced_texts
from specplan.measure.acceptance.heads import depth_of, drafts_at_once, head_ranks
from specplan.measure.acceptance.teacher import (
    NO_RANK,
    TracedText,
    allowed_along,
    greedy_ranks,
    sampled_ranks,
    text_logits,
)
from specplan.measure.progress import Progress
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import Problem, acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.problem.models import DraftModel
from specplan.planner.search.what_if import best_gain
from specplan.planner.training.curves import LEAST_POINTS, Evaluation
from specplan.planner.training.stopping import Speed, StopRule, Verdict, verdict
from specplan.runtime.models.ahead import states_ahead
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.text_attention import Texts

RANKS = 4
"""Choices of a head that are told apart."""
MOST_TEXTS = 48
"""Held-out texts that a head is evaluated on."""
MOST_DEPTH = 6
"""Positions that are evaluated."""


def unseen_texts(
    bench: Workbench, progress: Progress, most: int = MOST_TEXTS, split: str = PROFILE
) -> list[TracedText]:
    """The target's own texts after the problem's prompts of a split, that of acceptance or speed.

    Raises:
        UsageError: the problem has no such prompts.
    """
    return traced_texts(bench, bench.prompts(split)[:most], progress, least=2)


def ranks_along(
    drafter: Drafter | CausalModel, text: TracedText, depth: int, most: int
) -> list[tuple[int, ...]]:
    """Rank of each token of a text among a drafter's choices, by how far it was drafted ahead.

    A draft model reads the text alone, and says the same however far ahead it drafts: at
    temperature 0 the rank of the target's token, at others the rank that the target accepts.

    Args:
        drafter: a head, or a draft model.
        text: prompt and output.
        depth: tokens ahead.
        most: ranks that are told apart.
    """
    if isinstance(drafter, Drafter):
        return head_ranks([drafter], text, depth, most)
    if drafter.mask_token is not None:
        return ranks_ahead(drafter, text, depth, most)
    own = text.allowed(text_logits(drafter, text.tokens, text.start, request=text.request))
    if text.request.temperature == 0.0:
        ranks = greedy_ranks(own, list(text.output), most)
    else:
        ranks = sampled_ranks(text.logits, own, text.request, most)
    return [(rank,) * depth for rank in ranks]


@torch.inference_mode()
def ranks_ahead(
    model: CausalModel, text: TracedText, depth: int, most: int
) -> list[tuple[int, ...]]:
    """Those of a draft model that drafts in one pass: its children are its best ranks."""
    tokens, start = text.tokens, text.start
    texts = Texts.alone(torch.tensor([tokens[:-1]], device=model.device))
    roots = torch.arange(start - 1, len(tokens) - 1, device=model.device)
    ranks = torch.full((len(text.output), depth), NO_RANK)
    steps = states_ahead(
        model.family, model.num_layers, model.groups, model.dtype, texts, roots[None], depth,
        model.mask_token,
    )  # fmt: skip
    for step, states in enumerate(steps):
        left = len(text.output) - step
        if left <= 0:
            break
        logits = model.head(states)[0, :left].to(model.logits_dtype)
        places = range(step, len(text.output))
        logits = allowed_along(text.request, text.output, logits, places)
        ranks[step:, step] = torch.tensor(greedy_ranks(logits, tokens[start + step :], most))
    return [tuple(row) for row in ranks.tolist()]


def most_ahead(drafter: Drafter | CausalModel) -> int:
    """Positions that are evaluated of a drafter."""
    return min(depth_of(drafter), MOST_DEPTH) if isinstance(drafter, Drafter) else MOST_DEPTH


def evaluation(
    drafter: Drafter | CausalModel, texts: Sequence[TracedText], steps: int
) -> Evaluation:
    """Rounds from every token of every text, counted by position: drafts run freely.

    A token outside of a reduced vocabulary counts as rejected.
    """
    depth, first = most_ahead(drafter), first_place(drafter)
    reached, accepted = np.zeros(depth, dtype=int), np.zeros((depth, RANKS), dtype=int)
    for text in texts:
        ranks = ranks_along(drafter, text, depth, RANKS)
        for place in range(first, len(ranks)):
            for step, row in enumerate(ranks[place : place + depth]):
                reached[step] += 1
                if row[step] >= 0:
                    accepted[step, row[step]] += 1
                if row[step] != 0:
                    break
    rows = tuple(tuple(int(one) for one in row) for row in accepted)
    return Evaluation(steps, tuple(int(one) for one in reached), rows)


def first_place(drafter: Drafter | CausalModel) -> int:
    """The first token of an output that is drafted: a head drafts from what the target says."""
    return int(isinstance(drafter, Drafter) and not drafts_at_once(drafter))


def with_drafter(problem: Problem, family: str, folder: Path) -> Problem:
    """The problem with one drafter, whose acceptance need not be measured: any stands for it."""
    target = problem.models.target
    draft = DraftModel(name=family, path=folder.resolve(), dtype=target.dtype)
    models = problem.models.model_copy(update={"drafts": (draft,)})
    changes: dict[str, Any] = {"models": models, "acceptance": {family: 0.5}}
    return problem.model_copy(update=changes)


def planned_speed(facts: ProblemFacts, family: str) -> Speed:
    """Speed of the best plan with a drafter over no speculation, from its hazards.

    Args:
        facts: of a problem with this drafter (`with_drafter`).
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
    """Evaluates a drafter during its training on held-out texts, and says when to stop.

    Attributes:
        texts: held out.
        rule: what training costs.
        speed_of: prices acceptance; called once the checkpoint is there, so that this machine can
            time the drafter.
        points: steps after which it is evaluated; none for after every interval of the rule.
    """

    texts: Sequence[TracedText]
    rule: StopRule
    speed_of: Callable[[], Speed]
    points: frozenset[int] = frozenset()
    _speed: Speed | None = None

    def due(self, steps: int) -> bool:
        """See `specplan.training.trainer.Evaluator`."""
        return steps in self.points if self.points else steps % self.rule.interval == 0

    def look(self, drafter: Drafter | CausalModel, steps: int) -> Evaluation:
        """See `specplan.training.trainer.Evaluator`."""
        return evaluation(drafter, self.texts, steps)

    def decide(self, evaluations: Sequence[Evaluation], save: Callable[[], None]) -> Verdict:
        """See `specplan.training.trainer.Evaluator`."""
        if len(evaluations) < LEAST_POINTS or not self.rule.worth:
            return self.rule.go_on(evaluations[-1].steps)
        if self._speed is None:
            save()
            self._speed = self.speed_of()
        return verdict(evaluations, self.rule, self._speed)
