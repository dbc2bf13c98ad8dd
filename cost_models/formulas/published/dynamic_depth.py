"""Brown et al. 2024: stop deepening a beam that has probably lost the path."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import number

_BEAM = number("beam_value", "V", "probability that the accepted path is still in the beam",
               high=1.0)  # fmt: skip
_GAIN = number("gain", "g", "tokens that a further layer adds if it is", "tokens", high=100.0)
_TOKEN = number("seconds_per_token", "lambda", "time per token at the optimum", "s")

LAW = FormulaSet(
    name="dynamic_depth",
    title="depth of a beam by the probability that it still holds the path",
    source="Brown et al. 2024, Dynamic Depth Decoding, arXiv 2409.00142; the threshold by renewal "
    "reward",
    variables=(_BEAM, _GAIN, _TOKEN),
    formulas=(
        Formula(
            "worth_seconds",
            "t_d",
            "longest draft step that a further layer is worth",
            _BEAM.symbol * _GAIN.symbol * _TOKEN.symbol,
            "s",
        ),
    ),
    validity=("The draft model's confidences are calibrated.",),
)
