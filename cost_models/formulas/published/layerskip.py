"""Elhoushi et al. 2024: the target's own first layers as the draft model."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    ACCEPTANCE,
    LENGTH,
    chain_tokens,
    count,
    number,
)

_LAYERS = count("layers", "L", "layers of the target", "layers", low=1, high=1000)
_EXIT = count("exit_layer", "X", "layers that draft", "layers", high=1000)
_HEAD = number("head_layers", "h", "bytes of the output head in those of a layer", "layers",
               high=100.0)  # fmt: skip
_gamma, _layers, _exit = LENGTH.symbol, _LAYERS.symbol, _EXIT.symbol
_tokens = chain_tokens(ACCEPTANCE.symbol, _gamma)
_with_head = _layers + _gamma * _exit + (_gamma + 1) * _HEAD.symbol

LAW = FormulaSet(
    name="layerskip",
    title="self-speculation with an early exit, by the weights it reads",
    source="Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710; the traffic by counting",
    variables=(ACCEPTANCE, LENGTH, _LAYERS, _EXIT, _HEAD),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            _tokens / (1 + _gamma * _exit / _layers),
        ),
        Formula(
            "round_layers",
            "n",
            "layers whose weights a round reads: (gamma + 1) X to draft and to verify, and L - X",
            _layers + _gamma * _exit,
            "layers",
        ),
        Formula(
            "speedup_with_head",
            "S_h",
            "the same, the output head charged gamma + 1 times",
            _tokens * (_layers + _HEAD.symbol) / _with_head,
        ),
    ),
    validity=("Time is bound by reading weights: batch and context are small.",),
    mistakes=(
        Mistake(
            "the claim",
            "reusing the cache and states of the first layers is said to speed verification up",
            "where reading weights is the bound it saves arithmetic only: the last token goes "
            "through the first layers in any case, so that their weights are read once more with "
            "or without it",
        ),
    ),
)
