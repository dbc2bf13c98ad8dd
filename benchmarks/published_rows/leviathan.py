"""Leviathan et al. (arXiv 2211.17192): theory, and T5 speedups measured on a TPU-v4.

The paper's own formula, E / (gamma c + 1) with E of one alpha everywhere, misses its measured
speedups by 17.7 % (worst +47 %). Two things are missing, each one constant:

- *Acceptance is not the same everywhere.* Easy pass_specs are accepted whole, so at the same mean
  alpha more tokens are emitted: alpha is Beta distributed over rounds. The constant is the
  correlation of two acceptances in a round, 1 / (a + b + 1).
- *c is printed once per draft, for both tasks.* In T5X the keys and values of the encoded input
  are computed anew at every decoding step (t5x/examples/t5: `encoder_decoder_attention` is called
  without a cache), 4 x width x inner x layers operations per input token: 1.6 Gflop for T5-XXL,
  a sixteenth of that for T5-large. So the target's step grows with the input, from a sentence
  (EnDe) to an article (CNNDM), far more than the drafts' steps, and c shrinks with it. The constant
  is c on sentences over c on articles; the printed c is taken to be that of articles. It comes out
  as 2.8, which at the figures of a TPU-v4 (12.7 GB of decoder weights, 1.2 TB/s, 275 Tflop/s, 60 %
  of it) is an input of 2 000 to 2 500 tokens: articles padded to 2 048 would do it.

Calibration: the two rows of T5-base at temperature 0, one per task; two rows, two constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from published_rows.mixture import beta_tokens, correlation_of_tokens
from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.formulas.formula import load_formulas

SYSTEMS = ("Leviathan SD",)
SENTENCES, ARTICLES = "EnDe", "CNNDM"


@dataclass(frozen=True)
class Constants:
    """What the calibration rows set.

    Attributes:
        correlation: of two acceptances in one round.
        sentence_cost: c on sentences over c on articles.
    """

    correlation: float = 0.253
    sentence_cost: float = 2.80


SHIPPED = Constants()
"""From the rows named in the module's text: speedups 2.8 (EnDe) and 3.0 (CNNDM)."""


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Theory rows by the paper's formula, measured rows by ours."""
    constants = calibrate([row for row in rows if row.metric == "speedup_measured"])
    for row in rows:
        given = _given(row)
        if given is None:
            yield Unpredicted(row, "acceptance of a model pair is measured, not derived")
            continue
        alpha, gamma, cost = given
        if row.metric == "speedup_measured":
            value = speedup(row.task, alpha, gamma, cost, constants)
            yield Prediction(row, value, calibration=is_calibration(row))
        elif row.metric == "speedup_predicted_by_paper" or _theory(row, "speedup"):
            yield Prediction(row, _formula("speedup", alpha, gamma, draft_cost=cost))
        elif _theory(row, "ops_factor"):
            factor = _formula("operations_factor", alpha, gamma, draft_operations=0.0)
            yield Prediction(row, factor)


def _formula(name: str, alpha: float, gamma: int, **known: float) -> float:
    return float(load_formulas("leviathan").value(name, acceptance=alpha, length=gamma, **known))


def speedup(task: str, alpha: float, gamma: int, cost: float, constants: Constants) -> float:
    """Tokens per round of the mixture, over the round's time in target steps."""
    cost *= constants.sentence_cost if task == SENTENCES else 1.0
    return beta_tokens(alpha, gamma, constants.correlation) / (gamma * cost + 1.0)


def is_calibration(row: Row) -> bool:
    return row.draft == "T5-base" and row.get("temperature") == 0.0


def calibrate(rows: Sequence[Row]) -> Constants:
    """Both constants from the two named rows, exactly; the shipped ones where one is missing."""
    named = {row.task: row for row in rows if is_calibration(row) and row.positive}
    article, sentence = named.get(ARTICLES), named.get(SENTENCES)
    long, short = (_given(row) if row else None for row in (article, sentence))
    if not (article and sentence and long and short and short[2] > 0.0):
        return SHIPPED
    alpha, gamma, cost = long
    tokens = (article.positive or 1.0) * (gamma * cost + 1.0)
    correlation = correlation_of_tokens(tokens, alpha, gamma)
    alpha, gamma, cost = short
    round_cost = beta_tokens(alpha, gamma, correlation) / (sentence.positive or 1.0)
    return Constants(correlation, max(0.0, round_cost - 1.0) / (gamma * cost))


def _given(row: Row) -> tuple[float, int, float] | None:
    """Acceptance, drafted tokens and draft cost of a row, None where one makes no sense."""
    alpha, gamma, cost = row.get("alpha"), row.count("gamma"), row.get("c") or 0.0
    if alpha is None or gamma is None or not 0.0 <= alpha <= 1.0 or cost < 0.0:
        return None
    return alpha, gamma, cost


def _theory(row: Row, metric: str) -> bool:
    return row.hardware.startswith("analytic") and row.metric == metric
