"""Sources made from their declarations in plans, for a batch of requests or for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

import numpy as np

from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan, SourceState
from specplan.ir.tables.declaration import Declaration
from specplan.ir.tables.sources import SOURCE_ENTRIES
from specplan.runtime.requests import Request
from specplan.runtime.sources.source import Source, SourceDrafts, Tokens, Wanted

_FOLDER = __name__.rpartition(".")[0]
SOURCES: Mapping[str, type[Source]] = {
    entry.name: import_module(f"{_FOLDER}.{entry.name}").SOURCE for entry in SOURCE_ENTRIES
}
"""The class of each declared source, from the file of its name."""


def new_source(state: SourceState, vocabulary: int) -> Source:
    """A source as a plan declares it, taught nothing yet.

    Args:
        state: its declaration.
        vocabulary: tokens of the target.

    Raises:
        MissingCapabilityError: no file has such a source.
        UsageError: its folder is missing.
    """
    name = state.kind.name
    declared = next((entry for entry in SOURCE_ENTRIES if entry.name == name), None)
    if declared is None:
        raise MissingCapabilityError(
            f"no source {name} can be made here",
            where=f"state @{state.name}",
            remedy=f"There are {', '.join(SOURCES)}.",
        )
    return SOURCES[name].declared(state, _sizes(declared, state), vocabulary)


def row_width(state: SourceState) -> int:
    """Likeliest tokens that a declared source learns of a row of logits."""
    declared = next(entry for entry in SOURCE_ENTRIES if entry.name == state.kind.name)
    return SOURCES[state.kind.name].row_width(_sizes(declared, state))


def _sizes(declared: Declaration, state: SourceState) -> dict[str, int]:
    return {
        key: state.kind.integer(key, default)
        for key, default in declared.parameters
        if isinstance(default, int)
    }


def shared_sources(plan: Plan, vocabulary: int) -> dict[str, Source]:
    """States that outlive a batch, by name: those with scope=process or scope=read_only."""
    return {
        str(state.name): new_source(state, vocabulary)
        for state in plan.states
        if isinstance(state, SourceState) and state.scope != "request"
    }


def learning_from_all(plan: Plan) -> tuple[str, ...]:
    """Names of the states that learn from all requests, so that drafts depend on earlier ones."""
    return tuple(
        str(state.name)
        for state in plan.states
        if isinstance(state, SourceState) and state.scope == "process"
    )


def sources_of_batch(
    plan: Plan, vocabulary: int, shared: Mapping[str, Source], requests: Sequence[Request]
) -> dict[str, BatchSource]:
    """Every source of a plan, by name, for a batch."""
    return {
        str(state.name): BatchSource(state, vocabulary, shared.get(str(state.name)), requests)
        for state in plan.states
        if isinstance(state, SourceState)
    }


class BatchSource:
    """One source as a batch uses it: one state that all requests share, or one per request.

    Attributes:
        kind: the source's name in the table of sources.
        width: likeliest tokens that it learns of a row.
        each: the source of each request.
    """

    def __init__(
        self,
        state: SourceState,
        vocabulary: int,
        shared: Source | None,
        requests: Sequence[Request],
    ) -> None:
        self.kind = state.kind.name
        self.width = row_width(state)
        self._state, self._vocabulary, self._shared = state, vocabulary, shared
        self._last = 0
        self.each, self._keys = list[Source](), list[int]()
        self._begin(requests)

    def _begin(self, requests: Sequence[Request]) -> None:
        for request in requests:
            source = self._shared or new_source(self._state, self._vocabulary)
            self.each.append(source.of_request(request))
            self._keys.append(self.each[-1].begin(len(request.prompt_tokens)))

    def exchange(
        self, stay: Sequence[int], ended: Mapping[int, Tokens], requests: Sequence[Request]
    ) -> None:
        """Keep some rows, and begin new ones behind them.

        Args:
            stay: rows.
            ended: by their rows, texts `[n]` of the others.
            requests: the new ones.
        """
        for row, text in ended.items():
            self._close(row, text)
        self.each = [self.each[row] for row in stay]
        self._keys = [self._keys[row] for row in stay]
        self._begin(requests)

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """Draft tokens after texts, several of each request.

        Args:
            texts: int64 `[B * W, S]`, those of a request together.
            lengths: int64 `[B * W]`.
            wanted: limits.
        """
        if self._shared is self.each[0] and self._shared is not None:
            return self._shared.lookup(texts, lengths, wanted)
        count = len(self.each)
        parts = zip(self.each, np.split(texts, count), np.split(lengths, count), strict=True)
        return SourceDrafts.stacked(
            [source.lookup(own, sizes, wanted) for source, own, sizes in parts]
        )

    def learn_text(self, row: int, text: Tokens, last: int) -> None:
        """Teach the new part of a request's text `[n]`, in runs of `last` tokens."""
        self._last = last
        self.each[row].learn_text(self._keys[row], text, last)

    def close(self, texts: Sequence[Tokens]) -> None:
        """The batch is done: a shared source that learns texts learns the ends of these.

        Requests behind them only filled the batch up.
        """
        for row in range(len(self.each)):
            self._close(row, texts[row] if row < len(texts) else None)

    def _close(self, row: int, text: Tokens | None) -> None:
        source, key = self.each[row], self._keys[row]
        if self._last and self._shared is not None and text is not None:
            source.learn_text(key, text, self._last)
        source.close(key)
