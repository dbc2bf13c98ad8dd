"""Liu et al. 2024: an early exit with an adapter layer."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import chain_tokens
from specplan.cost_models.formulas.published.layerskip import LAW as LAYERSKIP

_ACCEPTANCE, _LENGTH, _LAYERS, _EXIT, _HEAD = LAYERSKIP.variables
_gamma, _layers, _exit, _head = _LENGTH.symbol, _LAYERS.symbol, _EXIT.symbol, _HEAD.symbol
_round = _gamma * (_exit + 1) + _layers - _exit + (_gamma + 1) * _head

LAW = FormulaSet(
    name="kangaroo",
    title="self-speculation through an adapter, by the weights it reads",
    source="Liu et al. 2024, Kangaroo, arXiv 2404.18911; the traffic by counting",
    variables=LAYERSKIP.variables,
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            chain_tokens(_ACCEPTANCE.symbol, _gamma) * (_layers + _head) / _round,
        ),
        Formula(
            "round_layers",
            "n",
            "layers whose weights a round reads, the adapter and the heads included",
            _round,
            "layers",
        ),
    ),
    validity=(
        "Time is bound by reading weights: batch and context are small.",
        "Verification starts from the states that drafting left at the exit.",
    ),
)
