"""Yan, Agarwal and Venkataraman 2024: latency of the draft model decides."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    DRAFT_SECONDS,
    LENGTH,
    TARGET_SECONDS,
    TOKENS,
    VERIFY_SECONDS,
    number,
)

_WANTED = number("wanted_speedup", "s", "speedup that is asked for", low=1e-6, high=100.0)
_LAYERS = number("draft_layers", "L", "layers of the draft model", "layers", high=200.0)
_LAYER = number("layer_seconds", "t_l", "time of one layer of the draft model", "s", high=1.0)
_HEAD = number("head_seconds", "t_h", "time of the rest of a draft step", "s", high=1.0)
_tar, _n, _draft = TOKENS.symbol, LENGTH.symbol, DRAFT_SECONDS.symbol
_verify, _target = VERIFY_SECONDS.symbol, TARGET_SECONDS.symbol
_round = _n * _draft + _verify

LAW = FormulaSet(
    name="decoding_speculative_decoding",
    title="throughput of a chain, and the draft latency that it needs",
    source="Yan, Agarwal and Venkataraman 2024, Decoding Speculative Decoding, arXiv 2402.01528",
    variables=(
        TOKENS, LENGTH, DRAFT_SECONDS, VERIFY_SECONDS, TARGET_SECONDS, _WANTED, _LAYERS, _LAYER,
        _HEAD,
    ),
    formulas=(
        Formula("speedup", "S", "times the speed of plain decoding", _tar * _target / _round),
        Formula("tokens_per_second", "X", "throughput of one request", _tar / _round, "tokens/s"),
        Formula(
            "required_draft_seconds",
            r"t_d^\ast",
            "longest draft step at which the wanted speedup is reached",
            (_tar * _target / _WANTED.symbol - _verify) / _n,
            "s",
        ),
        Formula(
            "draft_step_seconds",
            "t_d",
            "draft step of a small model: layers count, width hardly does",
            _LAYERS.symbol * _LAYER.symbol + _HEAD.symbol,
            "s",
        ),
    ),
    validity=(
        "One draft step per drafted token, one after the other; drafting and verifying take turns.",
        "E (the paper's TAR) counts the token that the target adds; it is at most gamma + 1.",
    ),
    mistakes=(
        Mistake(
            "repository, `analyze_output.py`",
            "the mean of accepted tokens is taken with an index that is off by one",
            "the tokens per round are the emitted tokens over the rounds, the target's own token "
            "included",
        ),
    ),
)  # fmt: skip
