"""Leviathan et al. (arXiv 2211.17192): theory, and T5 speedups measured on a TPU-v4.

The paper's own formula, E / (gamma c + 1) with E of one alpha everywhere, misses its measured
speedups by 17.7 % (worst +47 %). Two things are missing, each one constant:

- *Acceptance is not the same everywhere.* Easy stretches are accepted whole, so at the same mean
  alpha more tokens are emitted: alpha is Beta distributed over rounds. The constant is the
  correlation of two acceptances in a round, 1 / (a + b + 1).
- *c is printed once per draft, for both tasks.* In T5X the keys and values of the encoded input
  are computed anew at every decoding step (t5x/examples/t5: `encoder_decoder_attention` is called
  without a cache), 4 x width x inner x layers operations per input token: 1.6 Gflop for T5-XXL,
  a sixteenth of that for T5-large. So the target's step grows with the input, from a sentence
  (EnDe) to an article (CNNDM), far more than the drafts' steps, and c shrinks with it. The constant
  is c on sentences over c on articles; the printed c is taken to be that of articles.

Calibration: the two rows of T5-base at temperature 0, one per task; two rows, two constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from published_rows.mixture import beta_tokens, correlation_of_tokens
from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.closed_forms import chain_speedup, operations_factor

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
        alpha, gamma = row.get("alpha"), row.get("gamma")
        if alpha is None or gamma is None:
            yield Unpredicted(row, "acceptance of a model pair is measured, not derived")
        elif row.metric == "speedup_measured":
            yield Prediction(row, speedup(row, constants), calibration=is_calibration(row))
        elif row.metric == "speedup_predicted_by_paper" or _theory(row, "speedup"):
            yield Prediction(row, chain_speedup(alpha, int(gamma), row.get("c") or 0.0))
        elif _theory(row, "ops_factor"):
            yield Prediction(row, operations_factor(alpha, int(gamma), 0.0))


def speedup(row: Row, constants: Constants) -> float:
    """Tokens per round of the mixture, over the round's time in target steps."""
    gamma = row.get("gamma") or 0.0
    cost = (row.get("c") or 0.0) * (constants.sentence_cost if row.task == SENTENCES else 1.0)
    tokens = beta_tokens(row.get("alpha") or 0.0, int(gamma), constants.correlation)
    return tokens / (gamma * cost + 1.0)


def is_calibration(row: Row) -> bool:
    return row.draft == "T5-base" and row.get("temperature") == 0.0


def calibrate(rows: Sequence[Row]) -> Constants:
    """Both constants from the two named rows, exactly; the shipped ones where one is missing."""
    named = {row.task: row for row in rows if is_calibration(row)}
    article, sentence = named.get(ARTICLES), named.get(SENTENCES)
    if article is None or sentence is None or not article.number or not sentence.number:
        return SHIPPED
    gamma, cost = article.get("gamma") or 0.0, article.get("c") or 0.0
    tokens = article.number * (gamma * cost + 1.0)
    correlation = correlation_of_tokens(tokens, article.get("alpha") or 0.0, int(gamma))
    gamma, cost = sentence.get("gamma") or 1.0, sentence.get("c") or 1.0
    tokens = beta_tokens(sentence.get("alpha") or 0.0, int(gamma), correlation)
    return Constants(correlation, (tokens / sentence.number - 1.0) / (gamma * cost))


def _theory(row: Row, metric: str) -> bool:
    return row.hardware.startswith("analytic") and row.metric == metric
