"""Su et al. 2023: the best length falls as the batch grows."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import number

_LENGTH = number("length", "s", "drafted tokens per round", "tokens", low=1e-3, high=1024.0)
_SCALE = number("scale", "kappa", "accepted tokens at a length of one", "tokens", high=10.0)
_POWER = number("power", "gamma", "power by which accepted tokens grow with the length", high=1.0)
_SLOPE = number("slope_seconds", "a", "time per drafted token, growing with the batch", "s",
                low=1e-12, high=10.0)  # fmt: skip
_FIXED = number("fixed_seconds", "beta", "time of a round beside that", "s", high=1e3)
_s, _kappa, _gamma = _LENGTH.symbol, _SCALE.symbol, _POWER.symbol
_a, _beta = _SLOPE.symbol, _FIXED.symbol

LAW = FormulaSet(
    name="synergy",
    title="best length for a batch, from two fitted lines",
    source="Su, Giannoula and Pekhimenko 2023, The Synergy of Speculative Decoding and Batching, "
    "arXiv 2310.18813",
    variables=(_LENGTH, _SCALE, _POWER, _SLOPE, _FIXED),
    formulas=(
        Formula(
            "best_length",
            r"s^\ast",
            "length of the least time per token",
            _gamma * _beta / ((1 - _gamma) * _a),
            "tokens",
        ),
        Formula("accepted", "l", "accepted tokens of a round", _kappa * _s**_gamma, "tokens"),
        Formula(
            "seconds_per_token",
            "t",
            "time per token",
            (_a * _s + _beta) / (_kappa * _s**_gamma),
            "s",
        ),
    ),
    validity=(
        "Accepted tokens follow a power of the length (the paper's fit: 0.9 s^0.548).",
        "Verification is linear in the length; its slope grows with the batch, so that the best "
        "length falls.",
        "The best length is rounded to a whole number, and is at least 0.",
    ),
)
