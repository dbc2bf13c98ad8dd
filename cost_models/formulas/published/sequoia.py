"""Chen et al. 2024: trees whose shape follows acceptance by rank."""

from __future__ import annotations

import sympy

from specplan.cost_models.formulas.formula import Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    DRAFT_COST,
    DRAFT_SECONDS,
    TARGET_SECONDS,
    TOKENS,
    VERIFY_SECONDS,
    count,
    number,
)

_DEPTH = count("depth", "d", "depth of the tree in draft steps (the root has depth 0)", high=256)
_BUDGET = number(
    "verify_ratio", "t", "time to verify the tree in target steps, t(n)", low=1e-6, high=1e3
)
_FIRST = number("first_acceptance", "p_1", "acceptance of the first-ranked child", high=1.0)
_ANY = number("any_acceptance", "P_k", "acceptance of any of k children: p_1 + ... + p_k", high=1.0)
_i = sympy.Symbol("i", integer=True)
_value, _d = TOKENS.symbol, _DEPTH.symbol
_round = VERIFY_SECONDS.symbol + _d * DRAFT_SECONDS.symbol

LAW = FormulaSet(
    name="sequoia",
    title="value and time of a tree",
    source="Chen et al. 2024, Sequoia, arXiv 2402.12374",
    variables=(
        TOKENS, _DEPTH, DRAFT_COST, _BUDGET, DRAFT_SECONDS, VERIFY_SECONDS, TARGET_SECONDS,
        _FIRST, _ANY,
    ),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding",
            _value * TARGET_SECONDS.symbol / _round,
        ),
        Formula("tokens_per_second", "X", "throughput of one request", _value / _round, "tokens/s"),
        Formula(
            "relative_speedup",
            "S",
            "the same with times in target steps: G(n, d) / (t(n) + d c)",
            _value / (_BUDGET.symbol + _d * DRAFT_COST.symbol),
        ),
        Formula(
            "tokens_of_chains",
            "F_k",
            "tokens per round of k chains of depth d that share only the root",
            1 + _ANY.symbol * sympy.Sum(_FIRST.symbol**_i, (_i, 0, _d - 1)),
            "tokens",
        ),
        Formula(
            "most_tokens_of_chains",
            r"\bar F_k",
            "what no depth of such chains exceeds",
            1 + _ANY.symbol / (1 - _FIRST.symbol),
            "tokens",
        ),
    ),
    validity=(
        "E is the value F(T) of the tree: 1 for the root and, for every drafted node, the product "
        "of the acceptances p_k of the ranks on its path.",
        "p_k depends on the rank among siblings only, and is unconditional on the elder ones.",
        "One draft step per depth; no depth is drafted for the root.",
    ),
    mistakes=(
        Mistake(
            "repository, `tree_search.py`",
            "every level is charged a draft step, the root's too, so that plain decoding "
            "(1 level) pays for a draft it never makes",
            "a tree of 1 level has depth 0 and takes t(1)",
        ),
        Mistake(
            "growmaps and tables",
            "sizes and levels count the root",
            "a growmap of 10 levels drafts 9 deep",
        ),
        Mistake(
            "repository, verification",
            "the uniform fallback of the paper's algorithm is missing",
            "when the draft's support is used up, the remaining children are uniform",
        ),
    ),
)  # fmt: skip
