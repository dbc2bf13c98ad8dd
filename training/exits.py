"""`specplan train --exits`: classifiers or a policy that say where tokens leave the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import UsageError
from specplan.progress import Progress, silent
from specplan.training.session import Session

if TYPE_CHECKING:
    from specplan.problems import ProblemLike
    from specplan.training.trainer import Trained

STEP = 0.25
"""The learning rate of a linear classifier times the width of its states, whose entries have a root
mean square of 1: about how far a step of Adam moves a logit."""


def train_exits(
    problem: ProblemLike,
    kind: str,
    out: Path | str,
    *,
    steps: int = 1000,
    prompts: Path | str | None = None,
    learning_rate: float | None = None,
    rows: int | None = None,
    depth_price: float | None = None,
    answers: bool = True,
    progress: Progress = silent,
) -> Trained:
    """Train exits of the target along its own texts; called again, it goes on where it was.

    After each of three layers one linear classifier reads the state. The target stays as it is,
    and runs in float32 unless the problem names float64.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        kind: "classifier", whether an exit's token is that of all layers (CALM); or "policy", where
            to leave, by a policy gradient (ConsistentEE).
        out: folder of the checkpoint; `exit_classifier` or `exit_policy` of a problem names it.
        steps: of the whole training.
        prompts: JSON Lines of prompts to train on; None for the problem's of the split `train`.
        learning_rate: of Adam; None for 0.25 over the target's hidden size.
        rows: of up to 512 tokens that a step learns from; None for eight.
        depth_price: nats that all layers cost a token which the first ones know, of a policy; None
            for 0.6. A higher price leaves earlier.
        answers: learn along what the target answers; else along the prompts themselves.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem is broken; there are no prompts; the target has too few layers; or
            `out` holds something else, or a training of something else.
        MissingCapabilityError: running models needs an extra.
        SpecplanError: the loss is no number, or a checkpoint cannot be written.
    """
    from specplan.planner.templates.exits import exit_depths

    _check(kind, depth_price)
    session = Session.of(problem, [], prompts, progress, loss="ce", answers=answers)
    from specplan.training.learning.exits import ExitLearner, ExitRecipe
    from specplan.training.learning.objective import Objective
    from specplan.training.trainer import train_learner

    target = session.bench.models["target"]
    layers = exit_depths(target.num_layers)
    if not layers:
        raise UsageError("the target has too few layers to leave it early", where="models.target")
    given = {"rows": rows, "depth_price": depth_price}
    more: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    rate = STEP / target.hidden_size if learning_rate is None else learning_rate
    recipe = ExitRecipe(learning_rate=rate, answers=answers, seed=session.problem.seed, **more)
    learner = ExitLearner(kind, layers, target, recipe)
    objective = Objective("ce", (1.0,), 0.0, target.dtype, answers=False)  # of all layers' choice
    return train_learner(learner, objective, session.texts, steps, Path(out), recipe, progress)


def _check(kind: str, depth_price: float | None) -> None:
    """Refuse kinds that there are not, and settings of others."""
    from specplan.planner.drafters.trained_exits import KINDS

    if kind not in KINDS:
        known = " or ".join(KINDS)
        raise UsageError(f'no exits are called "{kind}"', where="exits", remedy=f"Write {known}.")
    if depth_price is not None and kind != "policy":
        raise UsageError(
            "depth_price is for policies, and these are classifiers",
            where="depth_price",
            remedy="Leave it out: the threshold is calibrated (limits.quality).",
        )
