"""The identity that every plan obeys."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import TARGET_SECONDS, TOKENS, number

_ROUND = number("round_seconds", "t_r", "time of a whole round", "s")
_tokens, _target, _round = TOKENS.symbol, TARGET_SECONDS.symbol, _ROUND.symbol

LAW = FormulaSet(
    name="round_time",
    title="time of a round over the tokens it emits",
    source="renewal reward: true of every plan, whatever it drafts from",
    variables=(TOKENS, _ROUND, TARGET_SECONDS),
    formulas=(
        Formula("speedup", "S", "times the speed of plain decoding", _tokens * _target / _round),
        Formula("seconds_per_token", "t", "time per token", _round / _tokens, "s"),
        Formula(
            "step_cost_ratio",
            "r",
            "time of a round in target steps: the tokens that it must emit to pay",
            _round / _target,
        ),
    ),
    validity=("Decoding only: the time of prompts is left out.",),
    mistakes=(
        Mistake(
            "EAGLE-2 (arXiv 2406.16858), table 1",
            "r = tokens / speedup falls from 1.30 (EAGLE) to 1.15 (EAGLE-2) on 13B, although "
            "EAGLE-2 drafts and verifies more",
            "the implementation changed between the rows; Spec-Bench measures r = 1.80 "
            "(4.43 tokens, 2.46 times)",
        ),
        Mistake(
            "EAGLE-2, table 1, Vicuna 13B, SpS at temperature 1",
            "the mean is printed as 1.55",
            "its six columns average 1.568",
        ),
        Mistake(
            "Sequoia (arXiv 2402.12374), table 1",
            "4.04 times the speed of a plain step of 24.2 ms, which is bound by launches",
            "against the 9.53 ms of a compiled 7B model (gpt-fast) it is 1.6 times",
        ),
    ),
)
