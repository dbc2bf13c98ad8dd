"""The acceptance rules that plans may name; `specplan.runtime.acceptance` has one file for each."""

from __future__ import annotations

from specplan.ir.declaration import Declaration
from specplan.ir.values import Range

_LEVIATHAN = "Leviathan et al. 2022, arXiv 2211.17192"

LOSSLESS = (
    Declaration(
        table="rule",
        name="greedy",
        summary="accepts what the target finds most probable",
        lossless="greedy",
        source=_LEVIATHAN,
    ),
    Declaration(
        table="rule",
        name="token",
        summary="rejects token by token (speculative sampling)",
        chain_only=True,
        reads_laws=True,
        uniforms_per_node=1,
        source=_LEVIATHAN,
    ),
    Declaration(
        table="rule",
        name="block",
        summary="judges a chain as a whole",
        chain_only=True,
        reads_laws=True,
        uniforms_per_node=1,
        source="Sun et al. 2024, arXiv 2403.10444",
    ),
    Declaration(
        table="rule",
        name="recursive",
        summary="rejects sibling by sibling, drawn with or without replacement, ranked or given",
        reads_laws=True,
        uniforms_per_node=1,
        source="Chen et al. 2024, Sequoia, arXiv 2402.12374; MCSD, arXiv 2401.06706; RSD, arXiv "
        "2402.14160",
    ),
    Declaration(
        table="rule",
        name="deterministic",
        summary="takes children as given, whatever they were drawn from",
        uniforms_per_node=1,
        source="Li et al. 2024, EAGLE, arXiv 2401.15077",
    ),
    Declaration(
        table="rule",
        name="k_seq",
        summary="scans independent draws under one level of acceptance",
        reads_laws=True,
        children=("draw",),
        uniforms_per_node=1,
        source="Sun et al. 2023, SpecTr, arXiv 2310.15141",
    ),
    Declaration(
        table="rule",
        name="naive",
        summary="the target draws, and what was drafted of its draws is accepted",
        uniforms_per_node=1,
        draws_by_place=True,
        source="Yang et al. 2024, MCSD, arXiv 2401.06706",
    ),
    Declaration(
        table="rule",
        name="gumbel",
        summary="target and draft draw with the same randomness",
        uniforms_per_node=1,
        draws_by_place=True,
        shares_uniforms=True,
        source="Daliri et al. 2024, arXiv 2408.07978",
    ),
)
"""Those that keep the target's law."""

LOSSY = (
    Declaration(
        table="rule",
        name="lenient",
        summary="rejects token by token, less often than the target's law asks",
        parameters=(("lenience", 0.5),),
        ranges=(("lenience", Range(1e-6, 1.0)),),
        lossless="never",
        chain_only=True,
        reads_laws=True,
        uniforms_per_node=1,
        loss=(0.2, 0.3),
        source=_LEVIATHAN + ", appendix",
    ),
    Declaration(
        table="rule",
        name="typical",
        summary="accepts what the target finds typical, by its entropy",
        parameters=(("epsilon", 0.09), ("delta", 0.3)),
        ranges=(("epsilon", Range(0.0, 1.0)), ("delta", Range(0.0, 1e6))),
        lossless="never",
        loss=(0.25, 0.3),
        source="Cai et al. 2024, Medusa, arXiv 2401.10774",
    ),
    Declaration(
        table="rule",
        name="top_beta",
        summary="accepts what is among the first choices, and not far behind",
        parameters=(("beta", 5), ("tolerance", 3.0)),
        ranges=(("beta", Range(1, 1 << 31)), ("tolerance", Range(0.0, 1e6))),
        lossless="never",
        loss=(0.3, 0.3),
        source="Xia et al. 2022, SpecDec, arXiv 2203.16487",
    ),
    Declaration(
        table="rule",
        name="rollback",
        summary="accepts what is not too unlikely",
        parameters=(("threshold", 5.0),),
        ranges=(("threshold", Range(0.0, 1e6)),),
        lossless="never",
        loss=(0.3, 0.3),
        source="Kim et al. 2023, BiLD, arXiv 2302.07863",
    ),
    Declaration(
        table="rule",
        name="contrastive",
        summary="judges by what the target knows better than the draft",
        parameters=(("beta", 0.5), ("alpha", 0.1)),
        ranges=(("beta", Range(0.0, 1e3)), ("alpha", Range(0.0, 1.0))),
        lossless="never",
        chain_only=True,
        reads_laws=True,
        uniforms_per_node=1,
        loss=(0.108028, 0.162396),
        source="Yuan et al. 2023, arXiv 2311.08981",
    ),
    Declaration(
        table="rule",
        name="cascade",
        summary="lets the draft's law stand where it is as sure as the target's",
        parameters=(("alpha", 0.1),),
        ranges=(("alpha", Range(0.0, 1e3)),),
        lossless="never",
        chain_only=True,
        reads_laws=True,
        uniforms_per_node=1,
        loss=(0.0, 0.3),
        source="Narasimhan et al. 2024, arXiv 2405.19261",
    ),
    Declaration(
        table="rule",
        name="all",
        summary="accepts every node, unseen",
        lossless="never",
        needs_rows=False,
        loss=(0.3, 0.3),
        source="Ghazvininejad et al. 2019, arXiv 1904.09324",
    ),
)
"""Those that change it."""

RULE_ENTRIES = (*LOSSLESS, *LOSSY)


def list_rules() -> tuple[Declaration, ...]:
    """Every acceptance rule that a plan may name, the lossless ones first."""
    return RULE_ENTRIES
