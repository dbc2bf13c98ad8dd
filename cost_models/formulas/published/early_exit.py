"""Bae et al. 2023: tokens that leave early, completed in parallel later."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import number

_LAYERS = number("layers", "L", "layers of the target", "layers", low=1.0, high=1000.0)
_EXIT = number("exit_layer", "X", "layers before the exit", "layers", high=1000.0)
_SHARE = number("exit_share", "f", "share of the tokens that leave there", high=1.0)
_per_token = _EXIT.symbol + (1 - _SHARE.symbol) * (_LAYERS.symbol - _EXIT.symbol)

LAW = FormulaSet(
    name="early_exit",
    title="layers per token with one early exit",
    source="Bae et al. 2023, FREE, arXiv 2310.05424; the traffic by counting",
    variables=(_LAYERS, _EXIT, _SHARE),
    formulas=(
        Formula("speedup", "S", "times the speed of the whole model", _LAYERS.symbol / _per_token),
        Formula(
            "layers_per_token",
            "n",
            "layers whose weights are read per token",
            _per_token,
            "layers",
        ),
    ),
    validity=(
        "Time is bound by reading weights; tokens that left early ride along with the next one "
        "that does not.",
    ),
    mistakes=(
        Mistake(
            "repository, `bmm.py`",
            "the responsibilities of the supervised fit are computed and then overwritten",
            "they are to be weighted by the labels (`=` stands for a weighted sum), or they are "
            "the labels themselves",
        ),
    ),
)
