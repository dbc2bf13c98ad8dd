"""Lookahead decoding (arXiv 2402.02057) and prompt lookup: speedups given their step compression.

Rounds are priced as those of Spec-Bench, on an A100 with eager PyTorch; nothing is calibrated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from published_rows.eager_host import Pass
from published_rows.public_models import public_model
from published_rows.row import Prediction, Row, Unpredicted, index, key_of
from published_rows.spec_bench import calibrate, method_ratio
from published_rows.spec_bench_methods import METHODS

SOURCE = "2402.02057"
SYSTEMS = ("Lookahead", "Lookahead+prompt ref", "Prompt lookup")
NAMES = ("system", "target", "task", "setting")


def predictions(rows: Sequence[Row]) -> Iterator[Prediction | Unpredicted]:
    """Speedups of rows whose step compression is printed too."""
    mine = [row for row in rows if SOURCE in row.source]
    given = index((row for row in mine if row.metric == "step_compression"), *NAMES)
    host = calibrate([])["A100-80GB"]
    for row in mine:
        tokens = given.get(key_of(row, *NAMES))
        target = public_model(row.target)
        if row.metric != "speedup" or tokens is None or not tokens.positive or target is None:
            yield Unpredicted(row, "given to the model, or its tokens per round are not published")
            continue
        method = METHODS["PLD" if row.system == "Prompt lookup" else "Lookahead"]
        window, guesses, size = (row.count(key, 256) for key in ("W", "G", "N"))
        if window and guesses and size:
            width = (window + guesses) * (size - 1) + 1
            method = replace(method, verify=Pass((width,), method.verify.layer_kernels))
        yield Prediction(row, tokens.positive / method_ratio(host, target, method))
