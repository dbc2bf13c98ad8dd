"""A cache while a round runs: how far it has come is a tensor, and a bound of what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.state.placements import Resident
from specplan.backends.eager.state.slots import Layers, NodeSlots
from specplan.backends.ops.forward import attention_mask
from specplan.backends.ops.tensors.values import Path
from specplan.backends.static.fusing import FusedCache, kernel_mask
from specplan.backends.static.interface import RoundTensors
from specplan.backends.static.traced.joined_attention import joined_mask
from specplan.runtime.models.attention import PrefixMask, RowMask

if TYPE_CHECKING:
    from specplan.backends.static.graph import RoundGraph


class RoundCache(NodeSlots):
    """Keys and values of one model, by the name of the state, in a round that reads no number.

    How much text a pass takes in is a bound that is known before the round: what it may lack when
    the round begins, what was emitted since, and none once all requests took part in a pass.

    Attributes:
        lengths: by segment, text tokens of each request that it has taken in, int64 `[B]`.
        scratch: the same with what passes of this round wrote that is no part of the text's.
        base: lengths of the texts behind which drafted nodes stand, int64 `[B]`.
        lacking: by segment and whether it is scratch, a bound of the text tokens that it lacks.
    """

    def __init__(self, graph: RoundGraph, given: RoundTensors, name: str) -> None:
        analysis, fused, model = graph.analysis, graph.fused, graph.model_of[name]
        store, segments, pending = given.stores[name], analysis.segments[name], graph.pending[name]
        self._attended, self._fused = given.slots, model in fused.attention
        self._angles = graph.angles.get(model) if store.functional else None
        if model in fused.moves:
            store = FusedCache(store, attended=self._fused)
        super().__init__(store, segments, analysis.plain.get(name), analysis.turning.get(name))
        self.lengths = dict(zip(segments, given.resident[name].unbind(1), strict=True))
        self.lacking = {
            (span, scratch): pending.get(span, 0) for span in segments for scratch in (False, True)
        }
        self._begin(given.lengths)

    def _begin(self, base: Tensor) -> None:
        """Forget drafted nodes; the next ones stand behind texts of these lengths."""
        self.clear()
        self.scratch, self.base = dict(self.lengths), base

    def follow(self, lengths: Tensor) -> None:
        """Forget drafted nodes where texts have grown to other lengths since they ran."""
        if lengths is not self.base:
            self._begin(lengths)

    def grown(self, tokens: int) -> None:
        """Texts have grown by so many tokens at most."""
        self.lacking = {where: bound + tokens for where, bound in self.lacking.items()}

    def texts(self, spec: PassSpec) -> int:
        """Columns of text that a pass needs, for tokens that its layers may lack."""
        return max((self.lacking[span, spec.scratch] for span in spec.segments), default=0)

    def resident(self, segments: Sequence[Layers], scratch: bool) -> Tensor:
        """See `NodeSlots.resident`."""
        lengths = self.scratch if scratch else self.lengths
        least, *others = (lengths[span] for span in segments)
        for other in others:
            least = least.minimum(other)
        return least[:, None]

    def mask(
        self,
        slots: Tensor,
        texts: int,
        ends: Tensor,
        offsets: Tensor | None,
        seen: Tensor | None,
        used: int,
        row: Tensor | None = None,
    ) -> Tensor | PrefixMask | RowMask:
        """See `NodeSlots.mask`; where attention is a kernel, of what follows a prefix."""
        if self._angles is not None and row is not None and 1 in row.shape:
            first = ends - texts if texts else ends + self.taken - row.shape[1]
            whole = attention_mask(slots, texts, ends, seen, self._attended)
            return joined_mask(
                self.store,
                first,
                row,
                None if seen is None else whole,
                self._attended,
                self._angles,
            )
        if not self._fused:
            return attention_mask(slots, texts, ends, seen, self._attended)
        columns = torch.arange(texts, device=slots.device)[None]
        if offsets is not None:
            behind = texts + (offsets if offsets.dim() == 2 else offsets[None])
            columns = torch.cat([columns.expand(len(behind), -1), behind], 1)
        window = torch.arange(texts + self.taken, device=slots.device)
        start = torch.full_like(columns[:, :1], texts)
        seen_there = attention_mask(columns, texts, start, seen, window)
        return kernel_mask((ends - texts)[:, 0], seen_there)

    def advance(self, spec: PassSpec, lengths: Tensor, only: Tensor | None) -> None:
        """Note that a pass took in text.

        Args:
            spec: what ran.
            lengths: of the texts, int64 `[B]`.
            only: the requests that took part, bool `[B]`; None for all.
        """
        for span in spec.segments:
            known, tried = self.lengths[span], self.scratch[span]
            if spec.scratch:
                self.scratch[span] = lengths if only is None else lengths.where(only, tried)
            else:
                taken = lengths if only is None else lengths.where(only, known)
                self.lengths[span] = self.scratch[span] = taken
            if only is None:
                self.lacking[span, spec.scratch] = 0
                if not spec.scratch:
                    self.lacking[span, True] = 0

    def commit_placed(self, path: Path, count: Tensor, resident: Resident) -> None:
        """Make emitted nodes of a path permanent, whose slots are known before the round runs.

        Args:
            path: what was accepted.
            count: how many nodes of it were emitted, int64 `[B]`.
            resident: slots of the judged tree.
        """
        if resident.in_place:
            count = count.clamp(max=resident.count)
        else:
            place = torch.arange(path.nodes.shape[1], device=count.device)
            live, slots = place < count[:, None], path.nodes - 1
            if not resident.numbered:
                table = torch.tensor(resident.slots, device=count.device)
                slots = table.expand(len(count), -1).gather(1, path.nodes)
                live = live & (slots >= 0)
                count = live.sum(1)
            start = self.base[:, None]
            self.store.move(start + slots, start + place, live)
        for span, known in self.lengths.items():
            mine = count if known is self.base else count.where(known >= self.base, 0)
            self.lengths[span] = known + mine
        self._begin(self.base)

    def commit(self, path: Path, count: Tensor) -> None:
        """Make the prefix of emitted nodes that is here permanent, and drop the rest.

        Args:
            path: what was accepted.
            count: how many nodes of it were emitted, int64 `[B]`.
        """
        keys, placed = path.keys, self.placed
        if placed is not None and not any(placed.get((span, False)) for span in self.segments):
            self._begin(self.base)  # all that ran was scratch
            return
        place = torch.arange(keys.shape[1], device=keys.device)
        emitted = place < count[:, None]
        slots, moved = torch.zeros_like(keys), torch.zeros_like(emitted)
        for span in self.segments:
            mine, here = self.prefix(keys, emitted, span)
            here = here & (self.lengths[span] >= self.base)[:, None]
            self.lengths[span] = self.lengths[span] + here.sum(1)
            if mine is not None:
                one = len(self.segments) == 1
                slots, moved = (mine, here) if one else (mine.where(here, slots), moved | here)
        if not self.in_order:
            start = self.base[:, None]
            self.store.move(start + slots, start + place, moved)
        self._begin(self.base)
