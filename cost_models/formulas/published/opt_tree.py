"""Wang et al. 2024: when a further layer of a tree is worth its draft step."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import DRAFT_COST, number

_SPEEDUP = number("best_speedup", "S", "speedup at the optimum", low=1e-6, high=100.0)
_GAIN = number("gain", "Delta", "accepted tokens that a further layer adds", "tokens", high=1000.0)
_TOKEN = number("seconds_per_token", "lambda", "time per token at the optimum", "s", low=0.0)

LAW = FormulaSet(
    name="opt_tree",
    title="depth of a tree that adapts to the draft's probabilities",
    source="Wang et al. 2024, OPT-Tree, arXiv 2406.17276; the threshold by renewal reward",
    variables=(DRAFT_COST, _SPEEDUP, _GAIN, _TOKEN),
    formulas=(
        Formula(
            "least_gain",
            r"\delta^\ast",
            "accepted tokens that a further layer must add to be worth drafting",
            DRAFT_COST.symbol * _SPEEDUP.symbol,
            "tokens",
        ),
        Formula(
            "worth_seconds",
            "t_d",
            "longest draft step that such a layer is worth",
            _GAIN.symbol * _TOKEN.symbol,
            "s",
        ),
    ),
    validity=("Verification takes as long with the further layer as without.",),
    mistakes=(
        Mistake(
            "section on the threshold",
            "delta is to lie between mu (a draft step in target steps) and 1",
            "it is mu times the speedup, for a token saved is worth the time per token reached, "
            "not that of plain decoding",
        ),
        Mistake(
            "repository, `tree.py`",
            "the gain is looked at one draft forward late, so that each round throws one away",
            "stop as soon as the last layer added less than the threshold",
        ),
        Mistake(
            "table of temperature 1, 13B with EAGLE",
            "a speedup of 2.21 is printed beside 69.27 tokens/s",
            "69.27 / 26.79 = 2.59",
        ),
    ),
)
