"""`specplan.train`: which drafter is worth training for a problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from specplan.ir.errors import UsageError
from specplan.progress import Progress, silent
from specplan.training.session import Session, bare_problem, draft_named

if TYPE_CHECKING:
    from specplan.planner.problem.schema import Problem
    from specplan.planner.training.candidates import Untrained
    from specplan.planner.training.vocabulary import Vocabulary
    from specplan.problems import ProblemLike
    from specplan.training.hand_over import HandedOver
    from specplan.training.pilot import Pilot
    from specplan.training.trainer import Trained


def train(
    problem: ProblemLike,
    *,
    drafter: str | Sequence[str] | None = None,
    stage: Literal["pays"] = "pays",
    out: Path | str | None = None,
    progress: Progress = silent,
) -> Untrained:
    """Say which drafters would pay for a problem once they are trained, and what training costs.

    The acceptance of a drafter is taken from published figures of its kind
    (`specplan.cost_models.acceptance.priors`); its plans and their prices are those of `optimize`.
    Nothing is run, unless the problem leaves its device to be measured.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        drafter: a family such as "eagle3", or several; None for all.
        stage: what is done; "pays" is the stage before training. `train_drafter` trains.
        out: write the config.json that training the best of them starts from to this folder.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem is broken, naming its key; there is no such family; or no candidate
            has a config.json, or `out` has one already.
        MissingCapabilityError: the problem leaves its device to be measured, and that needs an
            extra.
    """
    if stage != "pays":
        raise UsageError(f'there is no stage "{stage}"', where="stage", remedy='Write "pays".')
    from specplan.gathering import gather
    from specplan.planner.training.candidates import untrained_drafters
    from specplan.problems import as_problem, each_variant

    checked = each_variant(as_problem(problem))[0]
    families = [drafter] if isinstance(drafter, str) else drafter
    facts = gather(bare_problem(checked), progress)
    untrained = untrained_drafters(facts, families)
    if out is not None:
        write_config(checked, untrained, Path(out))
    return untrained


def train_drafter(
    problem: ProblemLike,
    drafter: str,
    out: Path | str,
    *,
    steps: int = 1000,
    prompts: Path | str | None = None,
    learning_rate: float | None = None,
    rows: int | None = None,
    unroll: int | None = None,
    warmup: int | None = None,
    loss: str = "ce",
    answers: bool = True,
    on_policy: float | None = None,
    parallel: int | None = None,
    after: Sequence[str] = (),
    worth: float | None = None,
    progress: Progress = silent,
) -> Trained:
    """Train a head, or distil a draft model; called again, it goes on where it was.

    The target runs in float32 unless the problem names float64.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        drafter: "eagle3", "eagle", "medusa", "dflash" or "look_ahead_tokens", of the published size
            unless `out` has a config.json; "kangaroo" or "exit_layer", an adapter on the target's
            first layers without and with an MLP; or a draft model that the problem lists, by its
            name or as "draft_model", which is distilled from its target.
        out: folder of the checkpoint, in the form that engines load.
        steps: of the whole training.
        prompts: JSON Lines of prompts to train on; None for the problem's of the split `train`.
        learning_rate: of Adam; None for 3e-4 of draft models, and `recipe.usual` of heads.
        rows: of up to 512 tokens that a step learns from; None for eight, and `recipe.usual`.
        unroll: tokens ahead that a head learns; None for seven, or as many as it drafts.
        warmup: steps over which the learning rate rises; None for twenty.
        loss: a name of `specplan.training.losses.LOSSES`, or a sum such as "0.1*ce+1*state".
        answers: learn what the target answers; else the prompts themselves, as the target would go
            on after each of their tokens, which takes no decoding.
        on_policy: share of the steps in which a draft model learns from its own samples after the
            prompts, instead of the target's answers; None for half of them.
        parallel: tokens that a draft model learns to draft in one pass (PARD); None for one by one.
        after: draft models of the problem, trained before: this one learns only what they miss, so
            that `specinfer` gains from both.
        worth: end early where the rest of the steps is expected to speed decoding up by less than
            this part (`specplan.planner.training.stopping`); None runs all.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem is broken; there are no prompts; or `out` holds something else, or a
            training of something else.
        MissingCapabilityError: running models needs an extra, or the family is not trained here.
        SpecplanError: the loss is no number, or a checkpoint cannot be written.
    """
    more: dict[str, Any] = {"learning_rate": learning_rate, "rows": rows, "loss": loss}
    more |= {"unroll": unroll, "warmup": warmup, "answers": answers, "on_policy": on_policy}
    more |= {"parallel": parallel, "after": after}
    session = Session.of(problem, [drafter], prompts, progress, **more)
    judge = None if worth is None else session.judge(drafter, Path(out), steps, worth)
    return session.train(drafter, Path(out), steps, judge=judge)


def pilot_drafters(
    problem: ProblemLike,
    drafters: Sequence[str],
    out: Path | str,
    *,
    steps: int = 1000,
    prompts: Path | str | None = None,
    learning_rate: float | None = None,
    rows: int | None = None,
    unroll: int | None = None,
    warmup: int | None = None,
    loss: str = "ce",
    answers: bool = True,
    on_policy: float | None = None,
    progress: Progress = silent,
) -> list[Pilot]:
    """Train each of some drafters for a few per cent of the steps, and say what all would give.

    Args:
        problem: see `train_drafter`.
        drafters: names of families, or of draft models.
        out: a folder; each training has one of its own in it, and `train_drafter` goes on there.
        steps: see `train_drafter`.
        prompts: see `train_drafter`.
        learning_rate: see `train_drafter`.
        rows: see `train_drafter`.
        unroll: see `train_drafter`.
        warmup: see `train_drafter`.
        loss: see `train_drafter`.
        answers: see `train_drafter`.
        on_policy: see `train_drafter`.
        progress: see `train_drafter`.

    Returns:
        The pilots, the one with the fastest plan first.
    """
    from time import perf_counter

    from specplan.training.pilot import pilot_points, piloted

    more: dict[str, Any] = {"learning_rate": learning_rate, "rows": rows, "loss": loss}
    more |= {"unroll": unroll, "warmup": warmup}
    more |= {"answers": answers, "on_policy": on_policy}
    session = Session.of(problem, drafters, prompts, progress, **more)
    points, pilots = pilot_points(steps), []
    for family in drafters:
        folder, start = Path(out) / family, perf_counter()
        judge = session.judge(family, folder, steps, 0.0, points)
        done = session.train(family, folder, steps, judge=judge, until=points[-1])
        each = (perf_counter() - start) / points[-1]
        speed = session.speed(family, folder)
        pilots.append(piloted(family, folder, done.evaluations, steps, speed, each))
    return sorted(pilots, key=lambda one: -one.speed.mean)


def size_vocabulary(
    problem: ProblemLike,
    drafter: str,
    out: Path | str | None = None,
    *,
    prompts: Path | str | None = None,
    answers: bool = True,
    progress: Progress = silent,
) -> list[Vocabulary]:
    """Price how many tokens a head should draft from (`specplan.planner.training.vocabulary`).

    The most frequent tokens of every second text are counted in the others.

    Args:
        problem: see `train_drafter`; on a device that prices heads, a data sheet.
        drafter: "eagle3", whose vocabulary may be reduced.
        out: write the config.json with the best size to this folder.
        prompts: see `train_drafter`.
        answers: see `train_drafter`.
        progress: see `train_drafter`.

    Returns:
        Sizes, the fastest first.

    Raises:
        UsageError: the family has no reduced vocabulary, or there are too few texts.
    """
    from specplan.gathering import gather
    from specplan.ir.files import write_json_atomic
    from specplan.planner.training.described import config_of
    from specplan.planner.training.vocabulary import coverage, priced_vocabularies

    if drafter != "eagle3":
        raise UsageError(
            f"the vocabulary of {drafter} is the target's, so its size cannot be chosen",
            where="drafter",
            remedy='Write "eagle3".',
        )
    session = Session.of(problem, [drafter], prompts, progress, loss="ce", answers=answers)
    texts = [text.tokens[text.start :] for text in session.texts]
    if len(texts) < 2:
        raise UsageError("coverage needs at least two texts", where="prompts")
    facts = gather(bare_problem(session.problem), progress)
    entries = facts.target.vocab_size
    sizes = priced_vocabularies(facts, drafter, coverage(texts[::2], texts[1::2], entries))
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        width = facts.target.hidden_size
        config = config_of(session.problem, drafter, 1, width, sizes[0].tokens)
        write_json_atomic(Path(out) / "config.json", config)
    return sizes


def hand_over_drafter(
    problem: ProblemLike,
    drafter: str,
    out: Path | str,
    *,
    number_type: str = "bfloat16",
    progress: Progress = silent,
) -> HandedOver:
    """Publish a trained drafter, after a check that it is served as it was trained.

    Args:
        problem: see `train_drafter`.
        drafter: the family, or the draft model.
        out: folder of its training; what is published stands in `published` below.
        number_type: of the published weights.
        progress: called during everything that takes long.

    Raises:
        UsageError: the folder holds no training.
        SpecplanError: training and serving disagree.
    """
    from specplan.problems import as_problem
    from specplan.runtime import require_torch

    require_torch()
    from specplan.training.hand_over import hand_over

    given = as_problem(problem)
    draft = draft_named(given, drafter)
    name = drafter if draft is None else draft.name
    return hand_over(bare_problem(given, prompts=True), name, Path(out), number_type, progress)


def write_config(problem: Problem, untrained: Untrained, folder: Path) -> Path:
    """Write the config.json that training the best candidate starts from.

    Returns:
        Its path.

    Raises:
        UsageError: no candidate has one, or the folder has one already, or other files.
    """
    from specplan.ir.files import check_destination, write_json_atomic
    from specplan.planner.training.described import config_of
    from specplan.planner.training.families import FAMILIES

    path = folder / "config.json"
    if path.exists():
        raise UsageError(
            "the folder has a config.json already", where=str(path), remedy="Name another folder."
        )
    check_destination(folder, path.name, "drafter")
    best = next((one for one in untrained.candidates if one.family != "mtp"), None)
    if best is None:
        left_out = [(FAMILIES[one.family].words, one.reason) for one in untrained.left_out]
        reasons = dict.fromkeys(f"{words}: {reason}" for words, reason in left_out)
        raise UsageError(
            "; ".join(["no drafter with a config.json would pay here", *reasons]),
            where="out",
            remedy="Name another family (--drafter eagle3), or plan for another backend.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    sizes = best.layers, best.width, best.vocabulary
    write_json_atomic(path, config_of(problem, best.family, *sizes))
    return path
