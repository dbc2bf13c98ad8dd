"""Leviathan et al. (arXiv 2211.17192): Table 1 (theory) and the expectations of Table 4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from published_rows.row import Prediction, Row, Unpredicted
from specplan.cost_models.closed_forms import chain_speedup, operations_factor

SYSTEMS = ("Leviathan SD",)


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """The paper's own formula for the rows that it computed."""
    for row in rows:
        alpha, gamma = row.get("alpha"), row.get("gamma")
        if alpha is None or gamma is None:
            continue
        theory = row.hardware.startswith("analytic")
        if row.metric == "speedup_predicted_by_paper" or (theory and row.metric == "speedup"):
            yield Prediction(row, chain_speedup(alpha, int(gamma), row.get("c") or 0.0))
        elif theory and row.metric == "ops_factor":
            yield Prediction(row, operations_factor(alpha, int(gamma), 0.0))
