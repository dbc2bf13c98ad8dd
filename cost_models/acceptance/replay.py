"""Static trees replayed on traces of what the rule accepted, all prompts in step.

A trace holds, for every position of the target's own continuation of a prompt, the rank of the
child that is accepted there. Every position is either an accepted drafted token or a bonus, so
one pass over the positions with the tree as a transition table plays all rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specplan.cost_models.acceptance.model import Floats, Integers, around
from specplan.cost_models.formulas.closed_forms import expected_rounds
from specplan.cost_models.intervals import Interval
from specplan.ir.types.value_types import depths_of

_RESAMPLES = 400


@dataclass(frozen=True, eq=False)
class Traces:
    """Integer traces of several prompts, padded.

    Attributes:
        values: one column per prompt, one row per position, [positions, prompts]; of ranks by
            depth [positions, prompts, depth].
        lengths: positions of each prompt.
    """

    values: Integers
    lengths: Integers

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]]) -> Traces:
        """Pad lists, one per prompt; empty ones are left out."""
        filled = [row for row in rows if len(row)]
        lengths = np.array([len(row) for row in filled], dtype=np.int64)
        shape = (int(lengths.max(initial=0)), len(filled))
        each = next((np.shape(row[0]) for row in filled), ())
        values = np.full((*shape, *each), -1, dtype=np.int64)
        for column, row in enumerate(filled):
            values[: len(row), column] = row
        return cls(values, lengths)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Where there is a position at all, [positions, prompts]."""
        mask: NDArray[np.bool_] = np.less.outer(np.arange(len(self.values)), self.lengths)
        return mask


@dataclass(frozen=True, eq=False)
class Replay:
    """What happened, prompt by prompt.

    Attributes:
        traces: what was replayed.
        ended: a round ended with this position as its bonus, [positions, prompts].
        trials: positions at which d tokens of the round had been accepted, [prompts, depth].
        continued: of those, the ones that accepted one more.
        ends: rounds by the last node that they accepted, the root first, [nodes + 1].
    """

    traces: Traces
    ended: NDArray[np.bool_]
    trials: Floats
    continued: Floats
    ends: Floats

    def share_begun(self, where: NDArray[np.bool_]) -> float:
        """Share of rounds that begin at some positions, of all whose beginning was seen.

        Args:
            where: those positions, [positions, prompts].
        """
        first = np.ones((1, self.ended.shape[1]), dtype=np.bool_)
        begun = np.concatenate([first, self.ended])[:-1] & self.traces.valid
        return float((begun & where).sum() / max(begun.sum(), 1))

    def end_shares(self) -> tuple[float, ...]:
        """Share of rounds whose last accepted node is the root, node 0, node 1, ..."""
        return tuple((self.ends / max(1.0, self.ends.sum())).tolist())

    def at_least(self) -> tuple[float, ...]:
        """P(at least d drafted tokens are accepted), d = 1, 2, ...

        A product of conditional frequencies (Kaplan and Meier 1958), so that the last round
        of a prompt, cut off by the end of its trace, counts for what was seen of it.
        """
        return tuple(_survival(self.continued.sum(axis=0), self.trials.sum(axis=0)).tolist())

    def tokens_per_round(self, confidence: float = 0.9) -> Interval:
        """Mean tokens per round with an interval over prompts; see `token_draws`."""
        return around(1.0 + sum(self.at_least()), self.token_draws(), confidence)

    def token_draws(self) -> Floats:
        """Mean tokens per round of resampled prompts, [draws].

        Bootstrap over prompts (Efron 1979); with one prompt, draws from the Beta posterior of
        each depth's frequency with Jeffreys' prior.
        """
        prompts, depth = self.trials.shape
        if prompts > 1:
            weights = _bootstrap_weights(prompts)
            survival = _survival(
                _weighted(weights, self.continued), _weighted(weights, self.trials)
            )
        else:
            rng = np.random.default_rng(0)
            hits = self.continued.sum(axis=0)
            rest = np.maximum(self.trials.sum(axis=0) - hits, 0.0)
            draws = rng.beta(hits + 0.5, rest + 0.5, size=(_RESAMPLES, depth))
            survival = np.cumprod(np.where(hits > 0, draws, 0.0), axis=1, dtype=np.float64)
        tokens: Floats = 1.0 + survival.sum(axis=1)
        return tokens

    def rounds(self, tokens: int, batch: int = 1, confidence: float = 0.9) -> Interval:
        """Rounds until every request of a batch has emitted `tokens`.

        Requests of a batch end at different rounds and the batch ends with the slowest: the
        mean over prompts for one, the mean largest of `batch` prompts for several. Traces
        shorter than `tokens` go on at the mean rate of all prompts.
        """
        unsorted = self._rounds_by_prompt(tokens)
        order = np.argsort(unsorted, kind="stable")
        counts = unsorted[order]
        prompts = len(counts)

        def slowest(weights: Floats) -> Floats:
            share = np.minimum(np.cumsum(weights, axis=1) / prompts, 1.0) ** batch
            before = np.concatenate([np.zeros((len(share), 1)), share[:, :-1]], axis=1)
            return _weighted(share - before, counts[:, None])[:, 0]

        mean = float(slowest(np.ones((1, prompts)))[0])
        return around(mean, slowest(_bootstrap_weights(prompts)[:, order]), confidence)

    def _rounds_by_prompt(self, tokens: int) -> Floats:
        ended = self.ended[:tokens]
        positions = np.arange(1, len(ended) + 1)[:, None]
        consumed = np.max(np.where(ended, positions, 0), axis=0, initial=0)
        at_least = self.at_least()
        left = np.where(
            self.traces.lengths >= tokens,
            consumed < tokens,
            [expected_rounds(float(tokens - done), at_least) for done in consumed],
        )
        rounds: Floats = ended.sum(axis=0) + left
        return rounds


def replay_tree(traces: Traces, parents: Sequence[int], ranks: Sequence[int]) -> Replay:
    """Play every prompt with a static tree.

    Args:
        traces: accepted ranks, -1 for none; by the depth of the round where that matters.
        parents: of the tree's nodes; -1 for the root.
        ranks: of the nodes.
    """
    widest = max(ranks, default=-1) + 1
    columns = widest + 2  # no rank, the tree's ranks, ranks beyond the tree
    table = np.zeros((len(parents) + 1, columns), dtype=np.int64)
    for node, (parent, rank) in enumerate(zip(parents, ranks, strict=True)):
        table[parent + 1, rank + 1] = node + 1
    depth = np.array([0, *depths_of(parents)], dtype=np.int64)
    leaf: NDArray[np.bool_] = np.logical_not(table.any(axis=1))
    steps = np.minimum(traces.values + 1, columns - 1)
    flat = (table * columns).ravel()  # next row offset; 0 is the root: the round ended
    states = np.empty((len(steps) + 1, len(traces.lengths)), dtype=np.int64)
    states[0] = 0
    prompts = np.arange(len(traces.lengths))
    for position, step in enumerate(steps):
        if step.ndim == 2:
            step = step[prompts, np.minimum(depth[states[position] // columns], step.shape[1] - 1)]
        flat.take(states[position] + step, out=states[position + 1], mode="clip")
    states //= columns
    before, after = states[:-1], states[1:]
    last = states[traces.lengths, np.arange(len(traces.lengths))]
    whole = last[leaf[last] & (last != 0)]
    stops = np.concatenate([before[(after == 0) & traces.valid], whole])
    ends = np.bincount(stops, minlength=len(depth)).astype(np.float64)
    return _count(traces, depth[before], after != 0, np.where(leaf[last], depth[last], 0), ends)


def replay_lengths(traces: Traces, limit: int) -> Replay:
    """Play every prompt with a source; `traces` hold the tokens it would have accepted.

    Args:
        traces: accepted length at each start position; -1 where nothing was proposed.
        limit: tokens proposed at most.
    """
    accepted = np.minimum(np.maximum(traces.values, 0), limit)
    shape = accepted.shape
    before, onward = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    depth, left = np.zeros(shape[1], np.int64), np.zeros(shape[1], np.int64)
    last = np.zeros(shape[1], np.int64)
    for position, lengths in enumerate(accepted):
        before[position] = depth
        left = np.where(depth == 0, lengths, left)
        goes = onward[position] = left > 0
        depth = np.where(goes, depth + 1, 0)
        left = left - goes
        finished = traces.lengths == position + 1
        last = np.where(finished & (depth == limit), depth, last)
    stops = np.concatenate([before[~onward & traces.valid], last[last > 0]])
    ends = np.bincount(stops, minlength=limit + 1).astype(np.float64)
    return _count(traces, before, onward, last, ends, limit)


def _count(
    traces: Traces,
    before: Integers,
    onward: NDArray[np.bool_],
    finished: Integers,
    ends: Floats,
    depth: int | None = None,
) -> Replay:
    """Trials and successes by prompt and depth.

    `finished` is the depth at which a prompt's last round had nothing left to accept when its
    trace ended (0 for none): that it stops there is known though its bonus was not seen.
    """
    prompts = before.shape[1]
    levels = (int(before.max(initial=0)) if depth is None else depth) + 1
    key = before + levels * np.arange(prompts)[None, :]
    valid = traces.valid
    size = prompts * levels
    trials = np.bincount(key[valid], minlength=size).astype(np.float64).reshape(prompts, levels)
    hits = np.bincount(key[valid & onward], minlength=size).astype(np.float64)
    rows = np.flatnonzero((finished > 0) & (finished < levels))
    trials[rows, finished[rows]] += 1.0
    return Replay(traces, valid & ~onward, trials, hits.reshape(prompts, levels), ends)


def _weighted(weights: Floats, values: Floats) -> Floats:
    """A small matrix product without BLAS, whose threads would wait for a busy machine."""
    product: Floats = np.einsum("rp,pd->rd", weights, values)
    return product


def _survival(continued: Floats, trials: Floats) -> Floats:
    hazards = continued / np.maximum(trials, 1e-300)
    return np.cumprod(hazards, axis=-1, dtype=np.float64)


@lru_cache(maxsize=8)
def _bootstrap_weights(prompts: int) -> Floats:
    """How often each prompt is drawn, [resamples, prompts]; the same draws every time."""
    even = np.full(prompts, 1.0 / prompts)
    return np.random.default_rng(0).multinomial(prompts, even, _RESAMPLES).astype(np.float64)
