"""Systems whose published numbers no model of costs and acceptance can be asked for, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from published_rows.row import Row, Unpredicted

NOT_STATED = "hardware and the code of the baseline are not stated, and speedups depend on both"
BEST_OF = "the best, or a range, over runs that are not described"
ERRORS = "prediction errors of other models: shown beside ours, not predicted"
ACCEPTANCE = "acceptance is not published beside the speed"

REASONS: Mapping[str, str] = {
    "EAGLE": NOT_STATED,
    "EAGLE-2": NOT_STATED,
    "EAGLE-3": NOT_STATED,
    "Hydra": NOT_STATED,
    "Medusa": NOT_STATED,
    "PLD": NOT_STATED,
    "SpS": NOT_STATED,
    "AR": NOT_STATED,
    "BiLD": BEST_OF,
    "CLLM": BEST_OF,
    "PEARL": BEST_OF,
    "SmartSpec": BEST_OF,
    "DSD wide-shallow draft": BEST_OF,
    "Kangaroo": ACCEPTANCE,
    "BASS": ACCEPTANCE,
    "SWIFT": ACCEPTANCE,
    "SpecDec++": ACCEPTANCE,
    "SpecTr": ACCEPTANCE,
    "RSD-C 2-2": ACCEPTANCE,
    "UMbreLLa": ACCEPTANCE,
    "GenZ": ERRORS,
    "LIMINAL": ERRORS,
    "Vidur": ERRORS,
    "Lookahead": NOT_STATED,
    "Sequoia": "a vector or a tree, no number",
    "Sequoia growmap": "a vector or a tree, no number",
    "Leviathan SD lenience": "acceptance of a model pair is measured, not derived",
}
SYSTEMS = tuple(REASONS)


def predictions(rows: Sequence[Row]) -> Iterator[Unpredicted]:
    """The reason for each row; a prediction or a reason of another file goes before."""
    for row in rows:
        if "Spec-Bench" not in row.source:
            yield Unpredicted(row, REASONS[row.system])
