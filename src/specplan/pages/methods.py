"""The methods as the page `docs/methods.md`, and as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json
from specplan.pages.published import published_rows
from specplan.planner.method import Method
from specplan.planner.search.settings import PLAIN

_HEAD = """# Methods

What the search may choose from: one file each in `planner/methods/`, or an entry point of the group
`specplan.methods` in another package. This page is written by `specplan methods --markdown
--measured benchmarks/results/methods.json`; a test holds it to the code and to those results, and
each status to the plans that the method writes.

- **priced**: its plans have a price on any device, given an acceptance profile;
- **emitted**: it writes its plans in the ops of the [plan language](plan_language.md);
- **runnable**: the `eager` backend runs its plans. Other methods are planned for with
  `backend: none` ([problem.md](problem.md)), and their acceptance is given, not measured;
- **by name**: it is offered only where a problem's `methods` names it, because its settings are
  measured by running them, it changes the output, or it seldom wins;
- **engines**: those whose configuration `specplan emit` writes for its simplest drafts;
  [engines.md](engines.md) says which of them take trees and lengths by batch size.

| method | what it does | drafts from | output | status | engines | source |
|---|---|---|---|---|---|---|
"""
Engines = Mapping[tuple[str, str], Sequence[str]]
"""Names of the engines by what they draft with: a method's `engine_drafter` and `shape`."""
_DIFFERENCES = """
Where a method differs from its paper:

| method | difference |
|---|---|
"""
_PUBLISHED = """
Published systems, by their papers: the methods that run them, or why none does.

| system | paper | here |
|---|---|---|
"""
_PRICED = """
What the target accepts of a draft is measured along its own text, at every position, and replayed
([acceptance.md](acceptance.md)); acceptance that is given comes from another program. Looked-up
tokens are certain proposals: one is accepted exactly where it is the token that the target chooses,
its best or its draw. Memory is what a method keeps besides models and caches, at most.

| method | acceptance | memory |
|---|---|---|
"""


_MEASURED = """
Measured by `benchmarks/methods.py` on the reference pair ({hardware}; torch {torch}; {date}): in
each column the best-priced plan of every method continues the same held-out prompts, in turns. A
cell is tokens per round, and the speed over plain decoding as measured (as predicted). The row of
the pick says what the planner picks by prices, and how much the best plan saves; where it has an
interval of 90 %, all plans near the fastest ran against the pick again on further prompts.
{tuned}The last rows say how much faster methods that `transformers` has too are than there, run in
turns; "equal" where all tokens were.

"""
_TUNED = """The row below it says what is picked after {minutes:g} minutes of `specplan tune` per
task and temperature, where that was run.
"""
_LATER = "Measured later, with plain decoding of that run, and not known to the picks: {names}."


def methods_page(
    methods: Sequence[Method[Any]], engines: Engines, measured: Mapping[str, Any] | None = None
) -> str:
    """The page, one row per method in each of its tables.

    Args:
        methods: those of the page.
        engines: see `Engines`.
        measured: what `benchmarks/methods.py --json` printed, with its `date`; None without it.
    """
    rows = _rows(_row(method, engines) for method in methods)
    differences = _rows((f"`{one.name}`", one.differs) for one in methods if one.differs)
    priced = _rows((f"`{one.name}`", one.acceptance or "-", one.memory or "-") for one in methods)
    table = "" if measured is None else measured_table(measured, _unmeasured(methods, measured))
    systems = _PUBLISHED + _rows(published_rows(methods))
    return _HEAD + rows + _DIFFERENCES + differences + _PRICED + priced + table + systems


def _rows(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def read_results(path: Path) -> Mapping[str, Any]:
    """What `benchmarks/methods.py --json` printed.

    Raises:
        UsageError: the file is missing or holds something else.
    """
    results = read_json(path, "results of methods")
    if not isinstance(results, dict) or not {"date", "columns"} <= results.keys():
        raise UsageError(
            "the file holds no results of methods",
            where=str(path),
            remedy="Make it with `python benchmarks/methods.py --work DIR --json`.",
        )
    return results


def _unmeasured(methods: Sequence[Method[Any]], measured: Mapping[str, Any]) -> list[str]:
    """Methods that run and are in no column."""
    names = {cell["method"] for column in measured["columns"] for cell in column["cells"]}
    return [method.name for method in methods if method.runnable and method.name not in names]


def measured_table(measured: Mapping[str, Any], unmeasured: Sequence[str] = ()) -> str:
    """Tokens per round and speed of every method in every column, but for those not measured."""
    columns = measured["columns"]
    titles = ["{task}, temperature {temperature}, batch {batch}".format_map(c) for c in columns]
    cells = [{cell["method"]: cell for cell in column["cells"]} for column in columns]
    names = sorted({name for column in cells for name in column})
    rows = [["method", *titles], ["---"] * (len(titles) + 1)]
    rows += [[f"`{name}`", *(_cell(column, name) for column in cells)] for name in names]
    rows.append(["the pick", *map(_pick, columns)])
    minutes = {column["tuned"]["minutes"] for column in columns if "tuned" in column}
    if minutes:
        rows.append(
            ["the pick, tuned", *(_pick(c["tuned"]) if "tuned" in c else "-" for c in columns)]
        )
    peers = [{peer["method"]: peer for peer in column["peers"]} for column in columns]
    for name in sorted({name for column in peers for name in column}):
        ratios = (_peer(column, one.get(name)) for column, one in zip(columns, peers, strict=True))
        rows.append([f"`{name}` over that of `transformers`", *ratios])
    about = {"torch": columns[0]["versions"]["torch"], "hardware": columns[0]["hardware"]}
    tuned = _TUNED.format(minutes=max(minutes)) if minutes else ""
    words = _MEASURED.format(date=measured["date"], tuned=tuned, **about)
    later = sorted({name for column in columns for name in column.get("joined", ())})
    if later:
        words = f"{words.rstrip()}\n{_LATER.format(names=_listed(later))}\n\n"
    if unmeasured:
        words = f"{words.rstrip()}\nNot measured yet: {_listed(unmeasured)}.\n\n"
    return words + _rows(rows)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(column: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """`3.51, 1.82 x (1.79)`."""
    if name not in column:
        return "-"
    cell, plain = column[name], column[PLAIN]
    predicted = cell.get(  # of a method measured later, over plain decoding of its own run
        "predicted_ratio",
        plain["predicted_seconds_per_token"] / cell["predicted_seconds_per_token"],
    )
    return f"{cell['tokens_per_round']:.2f}, {cell['ratio']:.2f} x ({predicted:.2f})"


def _peer(column: Mapping[str, Any], peer: Mapping[str, Any] | None) -> str:
    """`1.34 x, equal`; sampled outputs are not compared."""
    if peer is None:
        return "-"
    # older files count the prompts whose output differs from plain decoding's
    different = peer.get("different_outputs", peer.get("differing"))
    equal = column["temperature"] == 0.0 and different == 0
    return f"{peer['ratio']:.2f} x" + (", equal" if equal else "")


def _pick(column: Mapping[str, Any]) -> str:
    """The pick and its loss: `rest`, 1.2 % (-0.5 % to 2.9 %)."""
    final, loss = column.get("final"), f"{column['regret']:.1%}"
    within = f" ({final['low']:.1%} to {final['high']:.1%})" if final and final["turns"] else ""
    return f"`{column['pick']}`, {loss}{within}".replace("%", " %")


def method_as_dict(method: Method[Any], engines: Engines) -> dict[str, Any]:
    """What a method declares, ready for JSON."""
    return {
        "name": method.name,
        "summary": method.summary,
        "paper": method.paper,
        "acceptance": method.acceptance,
        "memory": method.memory,
        "lossless": method.lossless,
        "law": method.law,
        "sources": list(method.sources),
        "needs_draft_model": method.needs_draft_model,
        "priced": True,
        "emitted": True,
        "runnable": method.runnable,
        "papers": list(method.papers),
        "differs": method.differs,
        "by_name": method.by_name,
        "engines": list(engines.get((method.engine_drafter, method.shape), ())),
    }


def output_words(method: Method[Any]) -> str:
    """Whose distribution the output follows."""
    return {"target": "the target's own", "stated": "a mixture's"}.get(method.law, "changed")


def drafts_from(method: Method[Any]) -> str:
    """Its sources, and whether it needs a model or drafter besides the target."""
    models = ["a draft model or drafter"] if method.needs_draft_model else []
    return ", ".join([*method.sources, *models]) or "-"


def _row(method: Method[Any], engines: Engines) -> tuple[str, ...]:
    return (
        f"`{method.name}`",
        method.summary,
        drafts_from(method),
        output_words(method),
        ", ".join([*method.status, *(["by name"] if method.by_name else [])]),
        ", ".join(engines.get((method.engine_drafter, method.shape), ())) or "-",
        method.paper or "-",
    )
