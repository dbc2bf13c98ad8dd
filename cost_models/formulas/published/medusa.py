"""Cai et al. 2024: typical acceptance."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import count, number, sequence

_TARGET = sequence("target_law", "p", "target's probability of each token")
_SIZE = count("vocabulary", "V", "tokens of the vocabulary", "tokens", low=1)
_FLOOR = number("floor", "epsilon", "hard threshold (0.09)", high=1.0)
_SCALE = number("scale", "delta", "threshold by entropy (0.3)", high=1.0)
_i = sympy.Symbol("i", integer=True)
_p = _TARGET.symbol[_i]
_negative_entropy = sympy.Sum(_p * sympy.log(_p + sympy.Float("1e-5")), (_i, 1, _SIZE.symbol))

LAW = FormulaSet(
    name="medusa",
    title="typical acceptance",
    source="Cai et al. 2024, Medusa, arXiv 2401.10774; the 1e-5 from its repository",
    variables=(_TARGET, _SIZE, _FLOOR, _SCALE),
    formulas=(
        Formula(
            "threshold",
            "h",
            "a token is accepted if the target gives it more than this",
            sympy.Min(_FLOOR.symbol, _SCALE.symbol * sympy.exp(_negative_entropy)),
        ),
        Formula("entropy", "H", "entropy of the target's law", -_negative_entropy, "nats"),
    ),
    validity=("Output does not keep the target's distribution.",),
    mistakes=(
        Mistake(
            "repository, `utils.py`, defaults of `generate_candidates` and `evaluate_posterior`",
            "the floor is 0.3 and the scale 0.09",
            "the floor is 0.09 and the scale 0.3, as in `medusa_generate`",
        ),
        Mistake(
            "repository, `get_typical_posterior_mask`",
            "it is called with one argument too many when `fast` is off: a TypeError",
            "only the fast path runs",
        ),
    ),
)
