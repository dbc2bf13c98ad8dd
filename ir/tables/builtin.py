"""The open tables: what rules, laws, measures, sources and cache policies declare.

An entry here is a torch-free declaration, enough to verify and price a plan. What computes it
lives in `specplan.runtime`. An entry is a pure function of its operands: it cannot call a model,
touch a cache or remember anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specplan.ir.tables.acceptance import RULE_ENTRIES
from specplan.ir.tables.declaration import Declaration, Table
from specplan.ir.tables.laws import LAW_ENTRIES
from specplan.ir.tables.sources import SOURCE_ENTRIES
from specplan.ir.text.coerce import CoercionError, coerce
from specplan.ir.values import Entry, Range, Span, Text, print_atom

__all__ = ["BUILTIN", "Declaration", "Table", "Tables"]


GONE: Mapping[tuple[Table, str], str] = {
    ("rule", "contrastive"): "judge by mix ... law=contrastive, with rule=token",
    ("rule", "cascade"): "judge by mix ... law=cascade, with rule=token",
}
"""Entries of earlier versions, with what takes their place."""


class Tables:
    """Declarations by table and name."""

    def __init__(self, declarations: tuple[Declaration, ...]) -> None:
        self._declarations = {(item.table, item.name): item for item in declarations}

    def find(self, table: Table, name: str) -> Declaration | None:
        """The declaration, or None when the table has no such entry."""
        return self._declarations.get((table, name))

    def names(self, table: Table) -> tuple[str, ...]:
        """Names of a table's entries, sorted."""
        return tuple(sorted(name for kind, name in self._declarations if kind == table))

    def extended(self, *declarations: Declaration) -> Tables:
        """These tables and some more."""
        return Tables((*self._declarations.values(), *declarations))

    def problems(self, table: Table, entry: Entry) -> Iterator[str]:
        """What is wrong with an entry as it stands in a plan."""
        declared = self.find(table, entry.name)
        if declared is None and (table, entry.name) in GONE:
            yield f"the {table} {entry.name} is gone: {GONE[table, entry.name]}"
            return
        if declared is None:
            yield f"no {table} is called '{entry.name}'; there are {', '.join(self.names(table))}"
            return
        known = dict(declared.parameters)
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
            allowed = dict(declared.ranges).get(key)
            if allowed is not None and value not in allowed:
                limits = print_atom(allowed)
                yield f"{table} {entry.name} {key}: {print_atom(atom)} is not within {limits}"
        given = dict(entry.arguments)
        for key, default in declared.parameters:
            if isinstance(default, type) and key not in given:
                yield f"{table} {entry.name} needs '{key}='"


_OF_A_BATCH = ("max", "mean", "sum")
PROMISES = (
    Declaration(table="promise", name="target", summary="the target's own law"),
    Declaration(
        table="promise",
        name="stated",
        summary="the law that the judging logits state, of the target, another model or a mixture",
    ),
    Declaration(
        table="promise",
        name="bounded",
        summary="another law that loses at most `loss`, as `measure` counts it, or something of "
        "probability `risk` has happened; tested before the plan runs",
        parameters=(("loss", float), ("risk", 0.05), ("measure", "outputs_differ")),
        ranges=(("loss", Range(0.0, 1e6)), ("risk", Range(0.0, 1.0))),
        source="Schuster et al. 2022, CALM, arXiv 2207.07061; Angelopoulos et al. 2021, "
        "Learn then Test, arXiv 2110.01052",
    ),
    Declaration(table="promise", name="free", summary="whatever comes of it"),
)
"""What `assume law=` may promise of the output."""
THREADS = (
    Declaration(
        table="threads",
        name="points",
        summary="one thread per point of an outline",
        parameters=(("skeleton", Text), ("point", Text), ("route", Text())),
        source="Ning et al. 2023, Skeleton-of-Thought, arXiv 2307.15337",
    ),
    Declaration(
        table="threads",
        name="fork",
        summary="a thread begins where the text has a token",
        parameters=(("fork", int), ("child", int)),
        source="Liu et al. 2024, APAR, arXiv 2401.06761",
    ),
    Declaration(
        table="threads",
        name="labels",
        summary="one thread per label of a list",
        parameters=(("path", Text),),
        source="Lu et al. 2024, PaDeLLM-NER, arXiv 2402.04838",
    ),
    Declaration(
        table="threads",
        name="after",
        summary="a second text begins where the first ends with a token",
        parameters=(("stop", int),),
    ),
    Declaration(
        table="threads",
        name="thoughts",
        summary="a tree of thoughts, of which the best go on",
        parameters=(("width", 3), ("depth", 3), ("judge", Text)),
        source="Wang et al. 2024, SeeD, arXiv 2406.18200",
    ),
)
"""Which threads of a request begin and end, and with which text (`threads N by=`)."""
BUILTIN = Tables(
    (
        *RULE_ENTRIES,
        *SOURCE_ENTRIES,
        *LAW_ENTRIES,
        *PROMISES,
        *THREADS,
        Declaration(table="measure", name="top1", of="logits"),
        Declaration(table="measure", name="margin", of="logits"),
        Declaration(table="measure", name="entropy", of="logits"),
        Declaration(
            table="measure",
            name="score",
            of="logits",
            source="Huang et al. 2024, arXiv 2405.19715",
        ),
        Declaration(
            table="measure",
            name="saturation",
            summary="the cosine similarity of the states of two layers",
            of="states",
            source="Schuster et al. 2022, CALM, arXiv 2207.07061",
        ),
        Declaration(
            table="measure",
            name="logistic",
            summary="1 / (1 + exp(-weights · x - bias)) of a state x, scaled to a root mean square "
            "of 1; entries of x beyond the weights count nothing",
            of="states",
            parameters=(("weights", ()), ("bias", 0.0)),
            source="Schuster et al. 2022, CALM, arXiv 2207.07061; Zeng et al. 2023, "
            "ConsistentEE, arXiv 2312.11882",
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
        Declaration(table="measure", name="said", of="tree"),
        Declaration(
            table="measure",
            name="listed",
            summary="the number listed for the root's token, 0 for one that is not",
            of="tree",
            parameters=(("tokens", ()), ("numbers", ())),
            source="Sun et al. 2022, arXiv 2203.01670",
        ),
        *(Declaration(table="measure", name=f"batch_{of}", of="number") for of in _OF_A_BATCH),
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
            table="policy",
            name="observed",
            summary="per layer and head the prompt's tokens to which its last `window` ones attend "
            "most, smoothed over `pool` neighbours, and the latest tokens",
            parameters=(("window", 32), ("pool", 5)),
            ranges=(("window", Range(1, 4096)), ("pool", Range(1, 255))),
            source="Li et al. 2024, SnapKV, arXiv 2404.14469",
        ),
        Declaration(
            table="policy",
            name="by_head",
            summary="of a pass: the first tokens and the latest ones for all heads but those of "
            "`retrieval`, which read the whole cache",
            parameters=(("budget", int), ("sink", 16), ("retrieval", ())),
            ranges=(("budget", Range(1, 1 << 40)), ("sink", Range(0, 1 << 40))),
            of="pass",
            source="Xiao et al. 2024, DuoAttention, arXiv 2410.10819",
        ),
        Declaration(
            table="value",
            name="tree",
            parameters=(
                ("nodes", int),
                ("depth", int),
                ("parents", ()),
                ("how", "given"),
                ("init", -1),
            ),
        ),
        Declaration(table="value", name="number", parameters=(("init", 0.0),)),
        Declaration(table="value", name="calibrated", parameters=(("init", 0.0),)),
    )
)
