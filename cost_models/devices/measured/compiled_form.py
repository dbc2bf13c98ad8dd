"""What a compiler makes of the times that the interpreter was measured with.

A compiled round is one call, whose ops cannot be timed one by one. Some whole rounds are run, and
a form with few coefficients predicts their seconds from the interpreter's of their parts. A pass
takes

    model x single x (1 + several + token x (tokens - 1))

of `single`, the interpreter's time of the pass over one token: a part for the bytes of the weights,
`several` more where there is more than one token (a product of matrices, no longer one with a
vector), and one for each token behind the first. Moving the accepted nodes of a tree in the caches
takes `moves x interpreted`, what the host does with sources `sources x interpreted`, and everything
else `others x interpreted`. The forms of a round that looks up take turns, so that less of each
stays in the processor's caches; `sources` covers that cost as well.

`model` is a number for each model; the others are of the compiler and the device. What a
longer text adds to a pass is the interpreter's. Prompts take their measured share of its time: 1
where it runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean, median
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.cost import Quantity, minimum
from specplan.cost_models.devices.measured.compiled_runs import CompiledRun
from specplan.cost_models.devices.measured.spread import student

LEAST, MOST = 0.02, 2.0
"""Of the interpreter's pass over one token, what a compiled one takes at least and at most."""
LEAST_ERROR = 0.03
"""Relative half width of a round's 90 % interval, however well the form predicts those that ran."""
MISSED, COUNTS = 0.05, 4
"""What forms missed rounds by on the machines that were measured, and how many rounds that is worth
beside a machine's own: a few rounds that happen to fit well are no proof.
"""
PRIOR = 0.005
"""Weight of `USUAL` against a relative error, so that each round can be left out."""
USUAL = 0.5, 0.2, 0.05, 0.5, 2.0, 0.5
"""`model`, `several`, `token`, `others`, `moves` and `sources` where no round says otherwise."""
MOVES = "commit:tree"
"""The op that moves accepted nodes, as devices price it."""
SOURCES = frozenset({"lookup", "update"})
"""Ops that the host runs, beside a round's one call."""
Floats = NDArray[np.float64]
Model: TypeAlias = tuple[str, str]
"""Digest and number format."""


def part_of(op: str) -> Literal["moves", "sources", "others"]:
    """Which share an op takes, by the name that devices know it by."""
    if op == MOVES:
        return "moves"
    return "sources" if op.partition(":")[0] in SOURCES else "others"


@dataclass(frozen=True, slots=True)
class CompiledForm:
    """The form's numbers; see the module.

    Attributes:
        models: share by model.
        several: where a pass has more than one token.
        token: for each token behind the first.
        others: share of what everything but passes and moves takes.
        moves: share of what it takes to move the accepted nodes of a tree.
        sources: share of what lookups take, and what sources learn by.
        error: relative half width of the 90 % interval of a round.
        context: tokens of text of the rounds that ran.
        prompts: share of what prompts take, by batch; 1 for all where it is empty.
    """

    models: Mapping[Model, float]
    several: float
    token: float
    others: float
    moves: float
    sources: float
    error: float = 0.0
    context: int = 0
    prompts: Mapping[int, float] = field(default_factory=dict)

    def prompt_share(self, batch: Quantity) -> Quantity:
        """Of the interpreter's time for prompts, between measured batches by a line."""
        if not self.prompts:
            return 1.0
        batches = sorted(self.prompts)
        return np.interp(batch, batches, [self.prompts[one] for one in batches])

    def pass_seconds(self, single: float, tokens: Quantity, model: Model) -> Quantity:
        """Of a pass, from the interpreter's seconds over one token.

        Args:
            single: these seconds.
            tokens: of all requests together.
            model: whose share is the mean of all where no round of it was run compiled.
        """
        share = self.models.get(model, fmean(self.models.values()))
        behind = tokens - 1.0
        return share * single * (1.0 + self.several * minimum(behind, 1.0) + self.token * behind)

    def seconds(self, run: CompiledRun) -> float:
        """What the form makes of a round."""
        passes = sum(
            float(self.pass_seconds(one.single, one.tokens, (one.model, one.dtype))) * one.count
            for one in run.passes
        )
        others = run.others - run.moves - run.sources
        return passes + self.moves * run.moves + self.sources * run.sources + self.others * others

    def share(self, op: str) -> float:
        """Of the interpreter's seconds of an op, by the name that devices know it by."""
        return {"moves": self.moves, "sources": self.sources, "others": self.others}[part_of(op)]


@cache
def fit_compiled(runs: tuple[CompiledRun, ...]) -> CompiledForm:
    """The form that predicts rounds best, by least squares of relative errors.

    Its error is Student's, of what rounds are missed by with the unknowns counted and of `MISSED`.
    Where there are no more rounds than unknowns, it is of what each is missed by where the others
    are fitted.

    Args:
        runs: at least one, of texts of one length.
    """
    models = sorted({(one.model, one.dtype) for run in runs for one in run.passes})
    form, trees = _fitted(runs, models), any(run.moves for run in runs)
    sources = any(run.sources for run in runs)
    spare = len(runs) - len(models) - len(USUAL[1:-2]) - trees - sources
    if spare > 0:
        missed = [_missed(form, run) for run in runs]
        error = _half_width([*missed, *[MISSED] * COUNTS], spare + COUNTS)
    else:
        left = (_fitted([*runs[:i], *runs[i + 1 :]], models) for i in range(len(runs)))
        missed = [_missed(one, run) for one, run in zip(left, runs, strict=True)]
        error = _half_width(missed, max(len(runs) - 1, 1))
    by_batch: dict[int, list[float]] = {}
    for run in runs:
        if len(run.passes) == 1:  # of the target alone
            by_batch.setdefault(run.batch, []).append(run.prompts)
    prompts = {batch: median(shares) for batch, shares in by_batch.items()}
    context = runs[0].context
    return replace(form, error=max(error, LEAST_ERROR), context=context, prompts=prompts)


def _half_width(missed: Sequence[float], spare: int) -> float:
    """Half width of a 90 % interval, from residuals with so many degrees of freedom."""
    return student(spare) * float(np.sqrt(np.square(missed).sum() / spare))


def _missed(form: CompiledForm, run: CompiledRun) -> float:
    return form.seconds(run) / run.seconds - 1.0


def _fitted(runs: Sequence[CompiledRun], models: Sequence[Model]) -> CompiledForm:
    """The form without its error."""
    from scipy.optimize import least_squares

    model, *shared = USUAL
    usual = np.array([*[model] * len(models), *shared])

    def form(numbers: Floats) -> CompiledForm:
        shares, rest = numbers[: len(models)].tolist(), numbers[len(models) :].tolist()
        return CompiledForm(dict(zip(models, shares, strict=True)), *rest)

    def missed(numbers: Floats) -> Floats:
        tried = form(numbers)
        return np.array([*(_missed(tried, run) for run in runs), *PRIOR * (numbers / usual - 1.0)])

    least = [*[LEAST] * len(models), 0.0, 0.0, 0.0, 0.0, 0.0]
    most = [*[MOST] * len(models), MOST, MOST, 1.5, 20.0, 5.0]
    return form(least_squares(missed, usual, bounds=(least, most)).x)
