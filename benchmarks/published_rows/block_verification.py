"""Block and token verification of PaLM-2 (arXiv 2403.10444): one cost ratio for the whole table.

Both rules judge the same chain, so a round of gamma tokens costs 1 + gamma c plain steps in every
task; c is calibrated on one row (token verification on LM1B). Shorter chains of token verification
have the tokens per round of the acceptance that the mean at gamma = 8 implies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from published_rows.row import Prediction, Row, Unpredicted, index, key_of
from specplan.cost_models.formulas.closed_forms import acceptance_of_tokens, expected_tokens

SYSTEMS = ("token verification", "block verification")
SOURCE = "2403.10444"
LONGEST = 8
SHIPPED_COST, SHIPPED_ALPHA = 0.0599, 0.722
CALIBRATED = ("token verification", "LM1B")


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Speedups given tokens per round; tokens of shorter chains."""
    mine = [row for row in rows if SOURCE in row.source]
    given = index((r for r in mine if r.metric == "tokens_per_step"), "system", "task", "gamma")
    cost, alpha = SHIPPED_COST, SHIPPED_ALPHA
    for row in mine:
        tokens = given.get(key_of(row, "system", "task", "gamma"))
        if _named(row) and row.metric == "speedup" and tokens and tokens.positive and row.positive:
            cost = max(0.0, tokens.positive / row.positive - 1.0) / LONGEST
        if _mean(row) and row.get("gamma") == LONGEST and row.positive:
            alpha = acceptance_of_tokens(row.positive, LONGEST)
    for row in mine:
        gamma = row.count("gamma")
        tokens = given.get(key_of(row, "system", "task", "gamma"))
        if row.metric == "speedup" and gamma and tokens is not None and tokens.positive:
            speedup = tokens.positive / (1.0 + gamma * cost)
            yield Prediction(row, speedup, calibration=_named(row))
        elif _mean(row) and gamma:
            value = expected_tokens(alpha, gamma)
            yield Prediction(row, value, calibration=gamma == LONGEST)
        else:
            yield Unpredicted(row, "given to the model: acceptance of a task is measured")


def _named(row: Row) -> bool:
    return (row.system, row.task) == CALIBRATED and row.get("gamma") == LONGEST


def _mean(row: Row) -> bool:
    """Mean over tasks of the tokens per round of token verification."""
    return (
        row.system == "token verification"
        and row.metric == "tokens_per_step"
        and row.task.lower() in ("mean", "average", "mean of 8", "mean of 8 tasks")
    )
