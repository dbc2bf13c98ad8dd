"""Which blocks of the target a draft can spare: an integer programme, then Bayesian search.

The blocks of every layer but the first and the last make 2 (L - 2) yes-or-no choices (Draft &
Verify, arXiv 2309.08168; both ends are kept as in SWIFT, arXiv 2410.06916). They are never
enumerated. A first guess takes what blocks cost one by one: the logarithms of their acceptance
are summed and the time that they save is summed, and for several savings an integer programme
finds the set that loses least. Around these guesses a tree-structured Parzen estimator (Bergstra
et al. 2011) looks on, with the predicted seconds per token as what is made small.

Nothing here runs a model: what acceptance is, the caller's functions say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specplan.ir.blocks import ATTENTION, MLP, Skips

SAVINGS = (0.15, 0.3, 0.45, 0.6, 0.75)
"""Parts of all blocks' time that the integer programme is asked to save; SWIFT skips 0.45."""


@dataclass(frozen=True)
class SparedBlock:
    """What leaving one block out does.

    Attributes:
        name: of the block, as `attn.3`.
        seconds: that a draft pass saves.
        loss: minus the logarithm of the share of drafted tokens that are accepted without it.
    """

    name: str
    seconds: float
    loss: float


def searched_blocks(layers: int) -> tuple[str, ...]:
    """The blocks that may be left out: those between the first and the last layer."""
    return tuple(f"{kind}.{layer}" for layer in range(1, layers - 1) for kind in (ATTENTION, MLP))


def least_loss(blocks: Sequence[SparedBlock], saving: float) -> Skips | None:
    """The set of least summed loss among those that save so many seconds.

    An integer programme solved by HiGHS: x in {0, 1}, minimise loss x, seconds x >= saving.

    Args:
        blocks: what each does on its own.
        saving: seconds of a draft pass to be saved at least.

    Returns:
        The set; None where all blocks together save less, or nothing needs to be saved.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    seconds = np.array([block.seconds for block in blocks])
    if saving <= 0.0 or np.maximum(seconds, 0.0).sum() < saving:
        return None
    solution = milp(
        np.array([block.loss for block in blocks]),
        integrality=np.ones(len(blocks)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(seconds[None] / saving, lb=1.0),
        options={"mip_rel_gap": 0.0},
    )
    if solution.x is None:
        return None
    chosen = zip(blocks, solution.x, strict=True)
    return Skips.read(block.name for block, taken in chosen if taken > 0.5)


def first_guesses(blocks: Sequence[SparedBlock]) -> tuple[Skips, ...]:
    """The sets of least loss for several savings, small ones first.

    Where no block saves time, as a noisy measurement may have it, the one that loses least: its
    price tells what leaving blocks out costs. No set without blocks to choose from.
    """
    every = sum(max(block.seconds, 0.0) for block in blocks)
    sets = (least_loss(blocks, part * every) for part in SAVINGS)
    saving = tuple(dict.fromkeys(skips for skips in sets if skips))
    spared = sorted(blocks, key=lambda block: block.loss)[:1]
    return saving or tuple(Skips.read([block.name]) for block in spared)


def refine(
    guesses: Sequence[Skips],
    names: Sequence[str],
    value: Callable[[Skips], float],
    *,
    trials: int,
    seed: int,
) -> tuple[Skips, ...]:
    """Bayesian search around some sets; the same seed and values give the same sets.

    Args:
        guesses: tried first.
        names: of the blocks that may be left out.
        value: of a set, to be made small; asked again for sets that come up again.
        trials: beyond the guesses.
        seed: of the search.

    Returns:
        All sets tried, best first.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=len(guesses))
    study = optuna.create_study(sampler=sampler)
    for skips in guesses:
        study.enqueue_trial({name: name in skips.words for name in names})
    values: dict[Skips, float] = {}

    def objective(trial: optuna.Trial) -> float:
        taken = [name for name in names if trial.suggest_categorical(name, [False, True])]
        if not taken:
            raise optuna.TrialPruned
        skips = Skips.read(taken)
        values[skips] = value(skips)
        return values[skips]

    study.optimize(objective, n_trials=len(guesses) + trials)
    return tuple(sorted(values, key=lambda skips: (values[skips], len(skips), skips.words)))
