"""Text that a pass reads: what is missing, who waits, and how far caches have come."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.eager.op_runner import OpRunner
from specplan.backends.eager.passes.columns import Columns, Pass
from specplan.backends.eager.passes.one_pass import run_pass
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.state.batch import MOST_CHUNK
from specplan.backends.eager.state.caches import Cache
from specplan.backends.ops.tensors.values import Nodes
from specplan.runtime.models.attention import Packing
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter

if TYPE_CHECKING:
    from specplan.backends.eager.interpreter import Interpreter

_DENSE = 0.75
"""Passes with a larger share of columns that run are not packed."""


@dataclass(frozen=True)
class Reads:
    """Text that a pass reads, the root included, by request.

    Attributes:
        counts: tokens of each.
        columns: the most of them.
        stops: how far each text is read; None where all are read to their ends.
        waits: requests of which text is left, so that their nodes cannot run; None for none.
        idle: requests that take no part.
        shared: requests share a bound on tokens.
    """

    counts: Sequence[int]
    columns: int
    stops: Sequence[int] | None
    waits: Sequence[bool] | None
    idle: Sequence[bool]
    shared: bool

    def lines(self, texts: int, width: int) -> list[Sequence[int]]:
        """Columns of each request that run, of `width` with `texts` of text, the root's at last."""
        lines: list[Sequence[int]] = []
        for row, (count, out) in enumerate(zip(self.counts, self.idle, strict=True)):
            waits = self.waits is not None and self.waits[row]
            stop = texts if waits else width
            first = texts - (count if waits else max(count, min(texts, 1)))
            lines.append(range(0) if out else range(first, stop))
        return lines


def text_to_read(
    session: Interpreter, spec: PassSpec, cache: Cache | None, operands: Sequence[Nodes]
) -> Reads:
    """The text that each request reads in a pass.

    With `most=`, nodes come first, then text in the order of requests; who does not fit reads as
    much as there is room for, and waits.
    """
    idle, ends = session.idle_rows, session.batch.lengths
    lags = [0] * len(ends) if cache is None else lags_of(session, cache, spec)
    shared = spec.most is not None and cache is not None
    if shared:
        lags = [0 if out else lag for lag, out in zip(lags, idle, strict=True)]
        counts = _shares(spec, operands, lags, idle)
        texts = max(counts)
    else:
        texts = max(lags) if spec.feeds else min(max(lags), max(spec.pending, 1))
        counts = [lag if lag <= texts else 0 for lag in lags]
    if counts == lags:
        return Reads(counts, texts, None, None, idle, shared)
    waits = [count < lag for count, lag in zip(counts, lags, strict=True)]
    stops = [end - lag + count for end, lag, count in zip(ends, lags, counts, strict=True)]
    return Reads(counts, texts, stops, waits, idle, shared)


def _shares(
    spec: PassSpec, operands: Sequence[Nodes], lags: Sequence[int], idle: Sequence[bool]
) -> list[int]:
    """Text tokens that each request reads of what it lacks, under `most=`."""
    assert spec.most is not None
    root = int(any(nodes.root for nodes in operands))
    live = torch.stack([nodes.live.sum(1) for nodes in operands]).sum(0).tolist()
    left = spec.most - sum(count for count, out in zip(live, idle, strict=True) if not out)
    shares = []
    for lag in lags:
        text = max(lag - root, 0)
        allowed = max(min(text, spec.pending, left), 0)
        left -= min(text, spec.pending)
        shares.append(lag if allowed == text else allowed)
    return shares


def packing_of(
    session: Interpreter, spec: PassSpec, lines: Sequence[Sequence[int]], width: int
) -> Packing | None:
    """The columns of each request that run, if leaving out the others saves enough."""
    model = session.models[spec.model]
    if not (isinstance(model, CausalModel) and model.packs) or spec.block:
        return None
    if any(request.images is not None for request in session.batch.requests):
        return None
    count = sum(map(len, lines))
    if not count or count > _DENSE * len(lines) * width:
        return None
    return Packing.of(lines, width, session.batch.device)


def settle(session: Interpreter, cache: Cache, spec: PassSpec) -> None:
    """Run text until no more of it is missing than a pass may catch up."""
    most = _most(cache, spec)
    lacking = max(lags_of(session, cache, spec))
    if lacking > most and not spec.feeds:
        early = spec.scratch and not cache.of and spec.features is None
        own = session.analysis.whole[spec.cache or ""] if early else spec
        start = perf_counter()
        session.take_in(cache, own, most)
        if max(lags_of(session, cache, spec)) < lacking:
            session.caught_up = spec.model, lacking, perf_counter() - start


def reads_more(session: Interpreter, cache: Cache, spec: PassSpec) -> bool:
    """Whether a pass has to read more text than it may catch up, all of it at once."""
    return spec.feeds and max(lags_of(session, cache, spec)) > _most(cache, spec)


def _most(cache: Cache, spec: PassSpec) -> int:
    """Text tokens that a pass may catch up."""
    most = max(spec.pending, 1)
    return most if cache.retention is None else min(most, cache.retention.chunk + 1)


def lags_of(session: Interpreter, cache: Cache, spec: PassSpec) -> list[int]:
    """Text tokens that some layer lacks, of each request; 0 of those that do not take part."""
    lengths = cache.scratch if spec.scratch else cache.lengths
    lags = [0] * session.batch.size
    for span in spec.segments:
        for row, (now, done) in enumerate(zip(session.batch.lengths, lengths[span], strict=True)):
            if now - done > lags[row] and (session.active is None or session.active[row]):
                lags[row] = now - done
    return lags


def advance(
    lengths: Sequence[int], cache: Cache, spec: PassSpec, active: Sequence[bool] | None
) -> None:
    """Note that layers have taken in so much text."""
    for span in spec.segments:
        known = cache.lengths[span]
        cache.lengths[span] = [
            max(now, known[row]) if active is None or active[row] else known[row]
            for row, now in enumerate(lengths)
        ]
        cache.scratch[span] = cache.lengths[span]


def advance_scratch(lengths: Sequence[int], cache: Cache, spec: PassSpec) -> None:
    """Note that scratch has taken in all text that was pending."""
    for span in spec.segments if spec.scratch else ():
        cache.scratch[span] = list(map(max, lengths, cache.scratch[span]))


def how_far(
    session: Interpreter, lengths: Sequence[int], spec: PassSpec, call: Columns, live: Tensor
) -> Sequence[int]:
    """How far a pass that was to read all text has come: up to the first state that is missing."""
    if spec.features is None or spec.inside or not call.texts:
        return lengths
    lacking = lacking_text(session, spec, call, live)
    ends = torch.tensor(lengths, device=live.device)[:, None]
    reached: list[int] = call.positions[:, : call.texts].where(lacking, ends).amin(1).tolist()
    return reached


def lacking_text(session: OpRunner, spec: PassSpec, call: Columns, live: Tensor) -> Tensor:
    """Columns of text that are to run again when their states are there, bool `[B, texts]`.

    Those that could not run, and a last token that entered without its state.
    """
    lacking = call.live[:, : call.texts] & ~live[:, : call.texts]
    if spec.features is not None and session.models[spec.model].optional_features:
        above = call.positions[:, call.texts - 1 : call.texts] - spec.shift
        known = session.batch.tracks[spec.features].known.gather(1, above.clamp(min=0))
        early = call.live[:, call.texts - 1 : call.texts] & ~known & (above >= 0)
        lacking = torch.cat([lacking[:, :-1], lacking[:, -1:] | early], 1)
    return lacking


def catch_up(session: Interpreter, cache: Cache, spec: PassSpec, pending: int) -> None:
    """Run text through layers until at most `pending` tokens of it are left.

    This is prefill, and the way back for a drafter that a schedule had switched off.
    """
    batch = session.batch
    blind = spec.features is not None and not batch.tracks[spec.features].known.any()
    if blind and not (spec.inside or session.models[spec.model].optional_features):
        return  # nothing of what it reads is there yet
    only_fills = fills(session, spec)
    chunk = MOST_CHUNK if cache.retention is None else cache.retention.chunk
    if cache.base != batch.lengths:
        cache.begin(batch.lengths)
    active = session.active or [True] * batch.size
    while True:
        done = [min(cache.lengths[s][row] for s in spec.segments) for row in range(batch.size)]
        goals = [
            now - pending if active[row] else done[row] for row, now in enumerate(batch.lengths)
        ]
        width = max(goal - start for goal, start in zip(goals, done, strict=True))
        if width <= 0:
            return
        width = min(width, chunk)
        starts = torch.tensor(done, device=batch.device)[:, None]
        positions = starts + torch.arange(width, device=batch.device)
        live = positions < torch.tensor(goals, device=batch.device)[:, None]
        place = positions.clamp(max=batch.text.shape[1] - 1)
        tokens = batch.text.gather(1, place) * live
        ends = [min(start + width, goal) for start, goal in zip(done, goals, strict=True)]
        used = max(map(operator.sub, ends, cache.forgotten))
        lines = [range(min(width, goal - at)) for goal, at in zip(goals, done, strict=True)]
        packing = packing_of(session, spec, lines, width)
        call = Columns(tokens, positions, live, width, (), used, packing=packing)
        there = run_pass(Pass(session, spec, call, fills=only_fills), cache).live
        reached = how_far(session, ends, spec, call, there)
        if reached is not ends and all(map(operator.le, reached, done)):
            return  # what the next tokens are to read is not there yet
        took_in(reached, cache, spec, active)


def fills(session: Interpreter, spec: PassSpec) -> bool:
    """Whether a head needs no more of text than its keys and values, which follow at once."""
    model, tracks = session.models[spec.model], {name for name, _ in spec.keeps}
    return isinstance(model, Drafter) and model.fills and tracks <= session.analysis.read_from_root


def took_in(
    lengths: Sequence[int], cache: Cache, spec: PassSpec, active: Sequence[bool] | None
) -> None:
    """Note that text ran so far through layers, ahead of any round."""
    advance(lengths, cache, spec, active)
    cache.scratch = dict(cache.lengths)
    cache.forget()
