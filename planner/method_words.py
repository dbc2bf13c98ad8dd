"""The methods as the page `docs/methods.md`, and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specplan.planner.method import Method

_HEAD = """# Methods

What the search may choose from: one file each in `planner/methods/`, or an entry point of the group
`specplan.methods` in another package. This page is written by `specplan methods --markdown`; a test
holds it to the code, and each status to the plans that the method writes.

- **priced**: its plans have a price on any device, given an acceptance profile;
- **emitted**: it writes its plans in the ops of the [plan language](plan_language.md);
- **runnable**: the `reference` backend runs what it writes. Other methods are planned for with
  `backend: none` ([problem.md](problem.md)), and their acceptance is given, not measured;
- **engines**: those whose configuration `specplan emit` writes for its simplest drafts; which of
  them take trees and lengths by batch size stands in [engines.md](engines.md).

| method | what it does | drafts from | output | status | engines | source |
|---|---|---|---|---|---|---|
"""
Engines = Mapping[tuple[str, str], Sequence[str]]
"""Names of the engines by what they draft with: a method's `drafter` and `shape`."""


_PRICED = """
What the target accepts of a draft is measured along its own text, at every position, and replayed
([acceptance.md](acceptance.md)); what can only be given is told by another program. Looked-up
tokens are certain proposals: one is accepted exactly where it is the token that the target chooses,
its best or its draw. Memory is what a method keeps beside models and caches, at most.

| method | acceptance | memory |
|---|---|---|
"""


def methods_page(methods: Sequence[Method[Any]], engines: Engines) -> str:
    """The page, one row per method in each of its tables."""
    rows = "".join(f"| {' | '.join(_row(method, engines))} |\n" for method in methods)
    told = "".join(
        f"| `{method.name}` | {method.acceptance or '-'} | {method.memory or '-'} |\n"
        for method in methods
    )
    return _HEAD + rows + _PRICED + told


def method_as_dict(method: Method[Any], engines: Engines) -> dict[str, Any]:
    """What a method says of itself, ready for JSON."""
    return {
        "name": method.name,
        "summary": method.summary,
        "paper": method.paper,
        "acceptance": method.acceptance,
        "memory": method.memory,
        "lossless": method.lossless,
        "sources": list(method.sources),
        "needs_draft_model": method.needs_draft_model,
        "priced": method.priced,
        "emitted": method.emitted,
        "runnable": method.runnable,
        "engines": list(engines.get((method.drafter, method.shape), ())),
    }


def output_words(method: Method[Any]) -> str:
    """Whose law the output follows."""
    return "the target's own" if method.lossless else "changed"


def drafts_from(method: Method[Any]) -> str:
    """Its sources, and whether it needs a model or drafter beside the target."""
    beside = ["a draft model or drafter"] if method.needs_draft_model else []
    return ", ".join([*method.sources, *beside]) or "-"


def _row(method: Method[Any], engines: Engines) -> tuple[str, ...]:
    return (
        f"`{method.name}`",
        method.summary,
        drafts_from(method),
        output_words(method),
        ", ".join(method.status),
        ", ".join(engines.get((method.drafter, method.shape), ())) or "-",
        method.paper or "-",
    )
