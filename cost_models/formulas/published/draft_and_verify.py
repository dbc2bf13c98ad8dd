"""Zhang et al. 2023: the target without some of its blocks as the draft model."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    ACCEPTANCE,
    LENGTH,
    chain_tokens,
    count,
    number,
)

_KEPT = number("kept_share", "c", "bytes of the blocks that are kept, of all", high=1.0)
_RATE = number("rate", "r", "running mean of the share accepted", high=1.0)
_MATCHED = number("matched", "m", "accepted tokens of the round", "tokens", high=1024.0)
_DRAFTED = number("drafted", "k", "drafted tokens of the round", "tokens", low=1.0, high=1024.0)
_MOST = count("most", "K", "most tokens that a round drafts", "tokens", low=1, high=1024)
_STOP = number("threshold", "theta", "confidence below which drafting stops", high=1.0)
_WANTED = sympy.Rational(9, 10)
_STEP = sympy.Rational(1, 100)
_new_rate = (_RATE.symbol + _MATCHED.symbol / _DRAFTED.symbol) / 2
_moved = sympy.Piecewise(
    (_STOP.symbol + _STEP, _new_rate < _WANTED),
    (_STOP.symbol, sympy.Eq(_DRAFTED.symbol, _MOST.symbol)),
    (_STOP.symbol - _STEP, True),
)

LAW = FormulaSet(
    name="draft_and_verify",
    title="self-speculation that skips blocks, with a threshold that adapts",
    source="Zhang et al. 2023, Draft & Verify, arXiv 2309.08168; the update from its repository",
    variables=(ACCEPTANCE, LENGTH, _KEPT, _RATE, _MATCHED, _DRAFTED, _MOST, _STOP),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            chain_tokens(ACCEPTANCE.symbol, LENGTH.symbol) / (LENGTH.symbol * _KEPT.symbol + 1),
        ),
        Formula("new_rate", "r'", "the running mean after a round", _new_rate),
        Formula(
            "new_threshold",
            r"\theta'",
            "the threshold after a round: up when fewer than 0.9 are accepted, else down",
            _WANTED * _STOP.symbol + _moved / 10,
        ),
    ),
    validity=("Time is bound by reading weights: batch and context are small (speedup).",),
    mistakes=(
        Mistake(
            "repository, `decoding.py`, sampling with greedy drafts",
            "the probability of acceptance is divided by the draft's softmax",
            "a token chosen as the best one was drawn with probability 1; otherwise p = (0.5, 0.5) "
            "and q = (0.9, 0.1) give (0.5556, 0.4444), not p",
        ),
    ),
)
