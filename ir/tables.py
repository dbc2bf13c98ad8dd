"""The open tables: what rules, laws, measures, sources and cache policies declare.

An entry here is a torch-free declaration, enough to verify and price a plan. What computes it
lives in `specplan.runtime`. An entry is a pure function of its operands: it cannot call a model,
touch a cache or remember anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from specplan.ir.acceptance import RULE_ENTRIES
from specplan.ir.coerce import CoercionError, coerce
from specplan.ir.declaration import Declaration, Table
from specplan.ir.sources import SOURCE_ENTRIES
from specplan.ir.values import Entry, Range, Span, print_atom

__all__ = ["BUILTIN", "Declaration", "Table", "Tables"]


class Tables:
    """Declarations by table and name."""

    def __init__(self, declarations: tuple[Declaration, ...]) -> None:
        self._found = {(item.table, item.name): item for item in declarations}

    def find(self, table: Table, name: str) -> Declaration | None:
        """The declaration, or None when the table has no such entry."""
        return self._found.get((table, name))

    def names(self, table: Table) -> tuple[str, ...]:
        """Names of a table's entries, sorted."""
        return tuple(sorted(name for kind, name in self._found if kind == table))

    def extended(self, *declarations: Declaration) -> Tables:
        """These tables and some more."""
        return Tables((*self._found.values(), *declarations))

    def problems(self, table: Table, entry: Entry) -> Iterator[str]:
        """What is wrong with an entry as it stands in a plan."""
        found = self.find(table, entry.name)
        if found is None:
            yield f"no {table} is called '{entry.name}'; there are {', '.join(self.names(table))}"
            return
        known = dict(found.parameters)
        for key, atom in entry.arguments:
            if key not in known:
                takes = ", ".join(known) or "nothing"
                yield f"{table} {entry.name} takes no '{key}'; it takes {takes}"
                continue
            default = known[key]
            try:
                value = coerce(default if isinstance(default, type) else type(default), atom)
            except CoercionError as error:
                yield f"{table} {entry.name} {key}: {error}"
                continue
            allowed = dict(found.ranges).get(key)
            if allowed is not None and value not in allowed:
                limits = print_atom(allowed)
                yield f"{table} {entry.name} {key}: {print_atom(atom)} is not within {limits}"
        given = dict(entry.arguments)
        for key, default in found.parameters:
            if isinstance(default, type) and key not in given:
                yield f"{table} {entry.name} needs '{key}='"


BUILTIN = Tables(
    (
        *RULE_ENTRIES,
        *SOURCE_ENTRIES,
        Declaration(table="law", name="request"),
        Declaration(
            table="law",
            name="contrastive",
            parameters=(("beta", 0.5), ("alpha", 0.1)),
            lossless="never",
            source="Yuan et al. 2023, arXiv 2311.08981",
        ),
        Declaration(table="measure", name="top1", of="rows"),
        Declaration(table="measure", name="margin", of="rows"),
        Declaration(table="measure", name="entropy", of="rows"),
        Declaration(
            table="measure",
            name="score",
            of="rows",
            source="Huang et al. 2024, arXiv 2405.19715",
        ),
        Declaration(
            table="measure",
            name="value",
            of="tree",
            parameters=(("best", int),),
            ranges=(("best", Range(1, 2048)),),
        ),
        Declaration(table="measure", name="uniform", of="uniforms"),
        Declaration(table="measure", name="count", of="tree"),
        Declaration(table="measure", name="accepted", of="path"),
        Declaration(table="measure", name="lag", of="cache", parameters=(("layers", Span),)),
        Declaration(
            table="policy",
            name="sink_recent",
            summary="the first tokens and the latest ones",
            parameters=(("sink", 16),),
            source="Xiao et al. 2023, arXiv 2309.17453",
        ),
        Declaration(
            table="policy",
            name="retrieved",
            summary="per layer and head the chunks whose mean key agrees best with the query of "
            "the latest text token that the whole cache has read, the first and latest among them",
            parameters=(("chunk", 8),),
            ranges=(("chunk", Range(1, 4096)),),
            source="Sun et al. 2024, arXiv 2404.11912",
        ),
        Declaration(
            table="value",
            name="tree",
            parameters=(
                ("nodes", int),
                ("depth", int),
                ("parents", ()),
                ("law", "point"),
                ("init", -1),
            ),
        ),
        Declaration(table="value", name="number", parameters=(("init", 0.0),)),
    )
)
