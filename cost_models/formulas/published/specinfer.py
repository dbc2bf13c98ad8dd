"""Miao et al. 2023: trees in which every node of a level has as many children."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Formula, FormulaSet
from specplan.cost_models.formulas.published._common import path_products, sequence
from specplan.cost_models.formulas.published.sequoia import LAW as SEQUOIA

_DEPTH = SEQUOIA.variable("depth")
_ACCEPTED = sequence(
    "any_acceptances", "P", "by depth, acceptance of any of a node's children: p_1 + ... + p_k"
)
_WIDTHS = sequence("widths", "k", "by depth, children of every node of the depth above", "nodes")

LAW = FormulaSet(
    name="specinfer",
    title="trees of one expansion per level",
    source="Miao et al. 2023, SpecInfer, arXiv 2305.09781; values by the positional acceptance of "
    "Sequoia, arXiv 2402.12374",
    variables=(_DEPTH, _ACCEPTED, _WIDTHS),
    formulas=(
        Formula(
            "tokens",
            "F",
            "tokens per round, the bonus included",
            1 + path_products(_ACCEPTED.symbol, _DEPTH.symbol),
            "tokens",
        ),
        Formula(
            "nodes",
            "n",
            "nodes of the tree, the root included",
            1 + path_products(_WIDTHS.symbol, _DEPTH.symbol),
            "nodes",
        ),
    ),
    validity=("Acceptance depends on the rank among siblings only.",),
)
