"""The loss of a head as it is, so that two heads can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specplan.runtime.models.heads.drafter import Drafter
from specplan.training.learning.features import Features
from specplan.training.learning.heads import HeadLearner
from specplan.training.learning.objective import loss_of
from specplan.training.learning.packing import Text, labels_of, packed
from specplan.training.recipe import Recipe, objective_of


@torch.no_grad()
def head_loss(head: Drafter, texts: Sequence[Text], recipe: Recipe) -> float:
    """The loss of a head on some texts, in its own number type; in nats."""
    objective = objective_of(head, recipe, head.dtype)
    groups = packed(texts, recipe.row_tokens)
    learner = HeadLearner(head)
    rows, features = Features(learner, groups, objective).rows(range(len(groups)))
    labels = labels_of(rows, len(objective.weights), head.description.begins)
    return loss_of(learner, rows, labels, features, objective).item()
