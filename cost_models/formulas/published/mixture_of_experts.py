"""Verification by a mixture of experts: more tokens wake more experts."""

from __future__ import annotations

from specplan.cost_models.formulas.formula import Expression, Formula, FormulaSet, Mistake
from specplan.cost_models.formulas.published._common import (
    BATCH,
    DRAFT_COST,
    LENGTH,
    TOKENS,
    count,
    number,
)

_EXPERTS = count("experts", "M", "experts of a layer", "experts", low=1, high=4096)
_ACTIVE = count("active", "k", "experts that one token uses", "experts", low=1, high=4096)
_QUERIES = number("queries", "T", "tokens that a pass works on", "tokens", high=1e6)
_SHARE = number("expert_share", "f", "share of the experts in the bytes of a one-token pass",
                high=1.0)  # fmt: skip
_m, _k, _f = _EXPERTS.symbol, _ACTIVE.symbol, _SHARE.symbol


def _distinct(queries: Expression) -> Expression:
    return _m * (1 - (1 - _k / _m) ** queries)


_one = _distinct(BATCH.symbol) / _k
_verify = _distinct(BATCH.symbol * (LENGTH.symbol + 1)) / _k
_plain_bytes = 1 - _f + _f * _one
_verify_bytes = 1 - _f + _f * _verify

LAW = FormulaSet(
    name="mixture_of_experts",
    title="experts that a verification reads",
    source="expected distinct draws; the effect is described in MoESD, arXiv 2505.19645",
    variables=(_EXPERTS, _ACTIVE, _QUERIES, BATCH, LENGTH, TOKENS, DRAFT_COST, _SHARE),
    formulas=(
        Formula(
            "speedup",
            "S",
            "times the speed of plain decoding where reading weights is the bound",
            TOKENS.symbol * _plain_bytes / (LENGTH.symbol * DRAFT_COST.symbol + _verify_bytes),
        ),
        Formula(
            "distinct_experts",
            "U",
            "experts of a layer that a pass reads",
            _distinct(_QUERIES.symbol),
            "experts",
        ),
        Formula(
            "expert_traffic",
            r"U / k",
            "expert weights that a pass reads, in those of one token",
            _distinct(_QUERIES.symbol) / _k,
        ),
        Formula(
            "verify_ratio",
            "t",
            "bytes of verification in those of a plain step",
            _verify_bytes / _plain_bytes,
        ),
    ),
    validity=(
        "Every token chooses its experts independently and evenly, which reads the most; tokens "
        "that resemble each other read less.",
        "c is the draft step in passes of one token.",
    ),
    mistakes=(
        Mistake(
            "GenZ, MoE decoding; and theorem 3.8 of Leviathan et al. used on such a target",
            "a pass reads the k active experts, however many tokens it works on",
            "verifying 8 tokens on Mixtral reads 3.6 times the expert weights of one",
        ),
    ),
)
