"""Source `trie`: `runtime/sources/trie.py` computes it."""

from __future__ import annotations

from specplan.ir.declaration import Declaration

ENTRY = Declaration(
    table="source",
    name="trie",
    parameters=(("capacity", 65536),),
    source="Zhao et al. 2023, arXiv 2312.12728",
)
