"""Sadhukhan et al. 2024: speculation that pays more, the longer the context."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Expression, Formula, FormulaSet, Mistake, Variable
from specplan.cost_models.formulas.published._common import (
    BATCH,
    CONTEXT,
    DRAFT_SECONDS,
    LENGTH,
    TARGET_SECONDS,
    TOKENS,
    VERIFY_SECONDS,
    number,
)

_GLUE = number("glue_seconds", "t_s", "sampling and bookkeeping of a round", "s", high=1.0)
_PARAMETERS = number("parameters", "P", "parameters that a token multiplies with", high=1e13)
_WEIGHTS = number("weight_bytes", "W", "weights of the target", "bytes", high=1e14)
_KV = number("kv_bytes", "kappa", "KV cache of the target per token of text", "bytes", high=1e8)
_DRAFT_WEIGHTS = number("draft_weight_bytes", "W_d", "weights of the draft", "bytes", high=1e14)
_DRAFT_KV = number("draft_kv_bytes", "kappa_d", "KV cache of the draft per token", "bytes",
                   high=1e8)  # fmt: skip
_BUDGET = number("draft_budget", "K", "tokens of context that the draft reads", "tokens", high=1e7)
_BANDWIDTH = number("bandwidth", "w", "bytes read per second, as reached", "bytes/s", low=1.0,
                    high=1e15)  # fmt: skip
_FLOPS = number("flops", "phi", "operations per second, as reached", "1/s", low=1.0, high=1e18)
_STEP = number("step_seconds", "t_0", "time of a target step beside reading and computing", "s",
               high=1.0)  # fmt: skip
_DRAFT_STEP = number("draft_step_seconds", "t_1", "the same of a draft step", "s", high=1.0)


def _symbol(variable: Variable) -> Expression:
    return variable.symbol


_n, _b, _s, _omega = map(_symbol, (LENGTH, BATCH, CONTEXT, TOKENS))


def _target(queries: Expression) -> Expression:
    reading = _WEIGHTS.symbol / _BANDWIDTH.symbol
    computing = 2 * _PARAMETERS.symbol * _b * queries / _FLOPS.symbol
    attention = _b * _s * _KV.symbol / _BANDWIDTH.symbol
    return _STEP.symbol + sympy.Max(reading, computing) + attention


_draft = (
    _DRAFT_STEP.symbol
    + (_DRAFT_WEIGHTS.symbol + _b * _BUDGET.symbol * _DRAFT_KV.symbol) / _BANDWIDTH.symbol
)
_measured = _n * DRAFT_SECONDS.symbol + VERIFY_SECONDS.symbol + _GLUE.symbol

LAW = FormulaSet(
    name="magicdec",
    title="speedup by batch and context, drafting with a bounded KV cache",
    source="Sadhukhan et al. 2024, MagicDec, arXiv 2408.11049 (ICLR 2025); times of steps by "
    "bytes and operations",
    variables=(
        TOKENS, LENGTH, DRAFT_SECONDS, VERIFY_SECONDS, TARGET_SECONDS, _GLUE, BATCH, CONTEXT,
        _PARAMETERS, _WEIGHTS, _KV, _DRAFT_WEIGHTS, _DRAFT_KV, _BUDGET, _BANDWIDTH, _FLOPS, _STEP,
        _DRAFT_STEP,
    ),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding at a batch and context",
            _omega * _target(1) / (_n * _draft + _target(_n + 1) + _GLUE.symbol),
        ),
        Formula(
            "measured_speedup",
            "S",
            "the same from measured times of the steps",
            _omega * TARGET_SECONDS.symbol / _measured,
        ),
        Formula("seconds_per_token", "T_{SD}", "time per token", _measured / _omega, "s"),
        Formula(
            "verify_ratio",
            "T_V / T_T",
            "time of verification in target steps",
            _target(_n + 1) / _target(1),
        ),
        Formula(
            "balance_context",
            r"s_{=}",
            "context at which reading the KV cache takes as long as verification's arithmetic",
            2 * _PARAMETERS.symbol * (_n + 1) * _BANDWIDTH.symbol / (_FLOPS.symbol * _KV.symbol),
            "tokens",
        ),
    ),
    validity=(
        "Linear layers take the longer of reading their weights and computing; attention takes "
        "the time of reading the KV cache.",
        "The draft reads at most K tokens of context, however long the text is.",
        "With little context a larger batch makes verification compute and the speedup falls; with "
        "much it makes the KV cache dominate and the speedup rises, at most to the tokens per "
        "round.",
    ),
    mistakes=(
        Mistake(
            "the formula for the time per token",
            "it has no term for sampling and bookkeeping",
            "the published times leave about 1.35 ms per round over (median), enough to turn the "
            "speedup of 1.02 that the formula gives for Llama-2-7B-32K with TinyLlama (batch 32, "
            "1024 tokens of context) into the measured 0.95",
        ),
    ),
)  # fmt: skip
