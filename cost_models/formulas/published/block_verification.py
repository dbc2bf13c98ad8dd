"""Sun et al. 2024: verifying a block as a whole."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import LENGTH, number

_TARGET = number("target_first", "p", "target's probability of the first of two tokens", high=1.0)
_DRAFT = number("draft_first", "q", "draft model's probability of it", high=1.0)
_l, _j = sympy.symbols("l j", integer=True)
_p, _q = _TARGET.symbol, _DRAFT.symbol
_alpha = sympy.Min(_p, _q) + sympy.Min(1 - _p, 1 - _q)


def _path(probability: sympy.Expr) -> sympy.Expr:
    return probability**_j * (1 - probability) ** (_l - _j)


LAW = FormulaSet(
    name="block_verification",
    title="bounds of verification for a vocabulary of two tokens and laws without context",
    source="Sun et al. 2024, Block Verification, arXiv 2403.10444",
    variables=(_TARGET, _DRAFT, LENGTH),
    formulas=(
        Formula(
            "token_accepted",
            r"E[\tau]",
            "accepted tokens, verifying token by token: the least",
            sympy.Sum(_alpha**_l, (_l, 1, LENGTH.symbol)),
            "tokens",
        ),
        Formula(
            "joint_bound",
            r"\bar E[\tau]",
            "what no rule exceeds: the overlap of the laws of all prefixes",
            sympy.Sum(
                sympy.Sum(sympy.binomial(_l, _j) * sympy.Min(_path(_p), _path(_q)), (_j, 0, _l)),
                (_l, 1, LENGTH.symbol),
            ),
            "tokens",
        ),
    ),
    validity=("Accepted tokens only: the bonus is not counted.",),
    mistakes=(
        Mistake(
            "secondary texts on the paper",
            "block verification is said to reach the overlap of the joint laws",
            "it lies strictly between the two bounds from two tokens on: with p = 1/3, q = 2/3 "
            "and gamma = 2 it accepts 11/9, token by token 10/9, the bound is 12/9",
        ),
    ),
)
