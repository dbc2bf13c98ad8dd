"""Which plans that change the output keep the problem's quality limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.quality.bounds import p_value
from specplan.cost_models.quality.certificate import Loss, Measured
from specplan.cost_models.quality.formats import FormatLoss
from specplan.cost_models.quality.selection import shown_to_keep
from specplan.ir.errors import InfeasibleError
from specplan.ir.plan import Plan
from specplan.ir.values import Entry
from specplan.planner.facts import ProblemFacts
from specplan.planner.problem.limits import DIVERGENCE, KL, TEXT_LOSS, TOTAL_VARIATION, Quality
from specplan.planner.problem.schema import Problem
from specplan.planner.reasons import Cause, Reason
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import score

_NEAR = 1.1
"""Plans that take this much longer than the best lossless one are measured too: times err."""
_UNITS = {"held_out_loss": " nats per token", KL: " nats per token"}


def measure_name(quality: Quality) -> str:
    """The measure, of a divergence which one: as certificates and plans name it."""
    return quality.divergence if quality.measure == DIVERGENCE else quality.measure


def amount(value: float, measure: str) -> str:
    """A loss in words, by the name of its measure: `3.1 %`, `0.02 nats per token`."""
    if measure in _UNITS:
        return f"{value:.3g}{_UNITS[measure]}"
    digits = 3 if measure == TOTAL_VARIATION else 2
    return f"{100 * value:.{digits}g} %"


def changes_output(candidate: Candidate) -> bool:
    """Whether its output follows another law than the target's."""
    return candidate.plan is not None and not candidate.plan.assumptions.lossless


def within_quality(facts: ProblemFacts, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with what they lose; those that change the output beyond the limit refused.

    Settings of one family are tested from the slowest to the fastest, by the speeds that other
    prompts predict; the families share the risk (`shown_to_keep`).
    """
    quality = facts.problem.limits.quality
    if quality is None:
        return [*candidates]
    sequences = sequences_of(facts, candidates)
    measured = [[facts.losses[_key(one)] for one in members] for members in sequences]
    values = [
        [p_value(loss.calibration, quality.at_most / loss.most) for loss in row] for row in measured
    ]
    counts = shown_to_keep(values, quality.risk)
    losses: dict[int, Loss] = {}
    for members, row, tested, count in zip(sequences, measured, values, counts, strict=True):
        for place, (one, loss, value) in enumerate(zip(members, row, tested, strict=True)):
            losses[id(one)] = _loss(loss, quality.risk, value, place < count)
    return [_judged(quality, one, losses.get(id(one))) for one in candidates]


def check_format(problem: Problem, lost: Mapping[str, FormatLoss]) -> None:
    """Refuse formats of the target that are not shown to keep the problem's quality limit.

    Args:
        problem: one variant of a problem with several formats.
        lost: what other formats lose than those of the first variant, which are kept in any case,
            by `TargetModel.format_words`.

    Raises:
        InfeasibleError: says what it loses.
    """
    quality, words = problem.limits.quality, problem.models.target.format_words
    loss = lost.get(words)
    if quality is None or loss is None or loss.keeps(quality.at_most, len(lost)):
        return
    raise InfeasibleError(
        f"{words} is not shown to keep the limit of {amount(quality.at_most, TEXT_LOSS)}: it loses "
        f"{loss.mean:.3g} against {loss.against}, and at most {loss.bound:.3g}",
        where="limits.quality.at_most",
        remedy="Loosen the limit, or give more prompts.",
    )


def promise(quality: Quality) -> Entry:
    """What a plan promises under a quality limit: `bounded(loss=0.05, risk=0.05, measure=...)`."""
    name = measure_name(quality)
    arguments = (("loss", quality.at_most), ("risk", quality.risk), ("measure", name))
    return Entry("bounded", arguments)


def worth_measuring(
    facts: ProblemFacts,
    candidates: Sequence[Candidate],
    plain: Candidate,
    cheap: Callable[[Plan], bool],
) -> list[Plan]:
    """Plans that change the output, run and may be faster than the best that does not.

    Of these the ones within `_NEAR` of the best lossless plan's time, and all whose losses are
    cheap to measure.
    """
    exact = [one for one in candidates if one.admissible and not changes_output(one)]
    least = min((score(one, facts.objective) for one in [*exact, plain]), default=0.0)
    return [
        one.plan
        for one in candidates
        if changes_output(one)
        and one.priced
        and one.plan is not None
        and one.unsupported is None
        and (score(one, facts.objective) <= _NEAR * least or cheap(one.plan))
    ]


def sequences_of(facts: ProblemFacts, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates whose losses are known by family, in the order in which they are tested."""
    families: dict[tuple[str, str], list[Candidate]] = {}
    for one in candidates:
        if changes_output(one) and one.priced and _key(one) in facts.losses:
            families.setdefault((one.method, one.family), []).append(one)
    return [
        sorted(members, key=lambda one: -score(one, facts.objective))
        for members in families.values()
    ]


def _key(candidate: Candidate) -> str:
    assert candidate.plan is not None, "it has a price"
    return rounds_key(candidate.plan)


def _loss(measured: Measured, risk: float, value: float, keeps: bool) -> Loss:
    calibrated = measured.most * sum(measured.calibration) / max(1, len(measured.calibration))
    return Loss(
        mean=measured.mean,
        bound=measured.bound(risk),
        risk=risk,
        samples=len(measured.report),
        calibrated=calibrated,
        p_value=value,
        keeps=keeps,
    )


def _judged(quality: Quality, candidate: Candidate, loss: Loss | None) -> Candidate:
    """A candidate with its loss, and why it may not be chosen if that is too much or unknown."""
    if not changes_output(candidate) or not candidate.priced:
        return candidate
    if loss is not None and loss.keeps and loss.bound <= quality.at_most:
        return replace(candidate, loss=loss)
    name = measure_name(quality)
    limit = amount(quality.at_most, name)
    if loss is None:
        words = "limits.quality: what it loses has not been measured, or cannot be by this measure"
    else:
        words = (
            f"limits.quality: it loses {amount(loss.calibrated, name)}, at most "
            f"{amount(loss.bound, name)} ({quality.risk:.0%} risk), the limit is {limit}"
        ).replace("% risk", " % risk")
    refusal = "; ".join(filter(None, (candidate.refusal, words)))
    return replace(candidate, loss=loss, refusal=Reason(refusal, Cause.LIMIT))
