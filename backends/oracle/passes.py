"""One forward of one request: which paths run, what enters each layer, and what it sees.

A slot of a node stands for a place below it whose token nobody knows yet. Its path is that of the
node and as many times `SLOT` as it lies deeper: so slots see their node, what the node sees, and
the slots between, and nothing sees them but deeper slots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.backends.oracle.context import States, context_of
from specplan.backends.oracle.memory import Memory
from specplan.backends.oracle.stacks import SLOT, Stack
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.meaning import Logits, Path, Picked
from specplan.ir.ops import Forward
from specplan.ir.plan import CacheState, TrackState
from specplan.ir.types.residency import readings

if TYPE_CHECKING:
    from specplan.backends.oracle.world import OneRequest

MOST_CHUNK = 512
"""Text that a small cache reads at once, at most; see docs/plan_language.md."""


@dataclass
class Pass:
    """Computes logits of nodes, and remembers what entered each layer.

    Attributes:
        world: the request.
        op: the forward.
        operands: nodes of trees.
        allowance: text tokens that it may read, where requests share a bound (`most=`).
        early: the text's last token where it enters without its state; it runs again later.
    """

    world: OneRequest
    op: Forward
    operands: Sequence[Picked]
    allowance: int | None = None
    steps: dict[Path, int] = field(default_factory=dict)
    early: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        world, op = self.world, self.op
        self.stack: Stack = world.stacks[op.model]
        state = None if op.cache is None else world.plan.state(op.cache)
        self.cache = state if isinstance(state, CacheState) else None
        self.memory = Memory() if op.cache is None else world.memory[op.cache]
        track = None if op.features is None else world.plan.state(op.features)
        self.track = track if isinstance(track, TrackState) else None
        spans = [range(span.start, span.stop) for span in op.layers]
        self.layers = [n for span in spans or [range(self.stack.num_layers)] for n in span]
        self.first = spans[0].start if spans else 0
        self.small = self.cache is not None and self.cache.policy is not None

    def run(self) -> tuple[Logits, ...]:
        """Logits per operand and kind of output.

        Text that the cache lacks comes first, whatever `pending=` says of its length: a prompt, or
        what a drafter missed while it was switched off, is read by the same round in a wider form.
        """
        wanted = self.wanted()
        missing = self.missing()
        text = [path for path in missing if path not in wanted]
        if self.allowance is not None and len(text) > self.allowance:
            missing, wanted = text[: self.allowance], {}
        elif self.small:
            missing = self._read_in_chunks(missing)
        elif self.op.write == "scratch" and self.op.features is None:
            missing = self._read_exactly(missing)
        order = sorted({*missing, *wanted}, key=lambda path: (len(path), path))
        states = self._through(order, self._slots(wanted))
        names = ("logits",) if self.op.gives is None else self.op.gives
        outputs = {
            name: {
                path: self._outputs(path, name, levels, states)
                for path, levels in wanted.items()
                if path in states
            }
            for name in names
        }
        return tuple(
            Logits({p: by_path[p] for p in _paths(item) if p in by_path}, self.world.left(name))
            for item in self.operands
            for name, by_path in outputs.items()
        )

    def wanted(self) -> dict[Path, int]:
        """Live nodes, and how many levels each looks ahead."""
        levels: dict[Path, int] = {}
        for item in self.operands:
            for place, number in enumerate(item.numbers):
                if number in item.tree.living:
                    count = self.op.levels
                    each = count[place] if isinstance(count, tuple) else count
                    levels.setdefault(item.tree.path(number), each)
        return levels

    def missing(self) -> list[Path]:
        """Prefixes of the text that the layers of this pass have not read."""
        if self.op.cache is None:
            return []
        text = self.world.text
        return [text[:n] for n in range(1, len(text) + 1) if not self._resident(text[:n])]

    def _resident(self, path: Path) -> bool:
        if len(path) <= self.memory.forgotten:
            return True
        ends = {self.layers[0], self.layers[-1]} if self.layers else ()
        return all(self.memory.get(n, path, self.op.write) is not None for n in ends)

    def _read_in_chunks(self, missing: list[Path]) -> list[Path]:
        """A small cache reads no more at once than it holds, and forgets in between."""
        assert self.cache is not None
        if self.cache.view is not None:
            return missing
        chunk = min(MOST_CHUNK, self.cache.budget or MOST_CHUNK)
        most = max(min(self.op.pending, chunk + 1), 1)
        if len(self.world.text) == self.world.prompt_length:
            most = 1
        while len(missing) > most:
            size = min(chunk, len(missing) - most)
            self._through(missing[:size])
            missing = missing[size:]
            self.world.forget(self.cache)
        return missing

    def _read_exactly(self, missing: list[Path]) -> list[Path]:
        """Scratch is for drafts: text that no round has read is read by the whole stack first."""
        early = missing[: max(len(missing) - self.op.pending, 0)]
        if early and self.cache is not None:
            read_early(self.world, self.cache, early)
        return missing[len(early) :]

    def _slots(self, wanted: dict[Path, int]) -> list[Path]:
        """Slots below the nodes, where the model looks ahead by them."""
        if not self.layers or not self.stack.by_slots:
            return []
        ahead = ((path, count + self.stack.slots_first) for path, count in wanted.items())
        return [path + (SLOT,) * n for path, count in ahead for n in range(1, count)]

    def _through(self, paths: Sequence[Path], slots: Sequence[Path] = ()) -> States:
        """States of paths after the last layer; what lies below a gap is left out."""
        states = self._enter(paths)
        if not states:
            return {}
        skips, own = Skips.read(self.op.skip) if self.op.skip else NO_SKIPS, Memory()
        recorded: dict[int, States] = {}
        enter = max(self.stack.slots_enter, self.first) if slots else -1
        last = max((*self.layers, self.first - 1)) + 1
        for number in range(self.first, last):
            recorded[number] = states
            if number == enter:
                states = states | self._enter_slots(slots, states)
            if number in self.layers:
                for path, state in states.items():
                    memory = own if path[-1] == SLOT or path in self.early else self.memory
                    memory.put(number, path, state, self.op.write)
                if self.op.only is None:
                    context = context_of(self, number, states, own)
                    after = self.stack.layer(number, list(states), context, skips)
                    states = dict(zip(states, after, strict=True))
        recorded[last] = states
        if self.op.keep is not None:
            self._keep(recorded, states)
        return states

    def _enter(self, paths: Sequence[Path]) -> States:
        """What enters the first layer, for paths whose feature and ancestors are there."""
        op, given, text, gap = self.op, dict[Path, Tensor | None](), self.world.text, False
        own = self.track is not None and self.track.model == op.model
        for path in paths:
            above = path[: len(path) - op.shift]
            feature, step = self._feature(above, op.shift)
            lacking = self.track is not None and feature is None and above
            gap |= bool(lacking) and not own and len(path) < len(text)
            if lacking and not self.stack.optional_features:
                continue
            if self.stack.optional_features and gap:  # text before the root needs its states
                continue
            if lacking and path == text:
                self.early.add(path)
            if op.cache is not None and self.layers and not self._reaches(path, given):
                continue
            self.steps[path] = step + 1 if own and feature is not None else 0
            given[path] = feature
        on = own and op.shift == 0 and op.layers  # they go on in the middle of their own stack
        entered = {path: state for path, state in given.items() if on and state is not None}
        entered |= self.stack.enter({p: given[p] for p in given if p not in entered}, self.steps)
        return {path: entered[path] for path in given}

    def _enter_slots(self, slots: Sequence[Path], states: States) -> States:
        """What enters for slots: what an earlier pass left there, or what the model begins with."""
        entered: States = {}
        for slot in slots:
            level = slot.count(SLOT)
            node = slot[: len(slot) - level]
            if node not in states:
                continue
            slotted = self.track is not None and self.track.levels > 1
            left = self._feature(node, level)[0] if slotted else None
            entered[slot] = self.stack.enter_slot(states[node], level) if left is None else left
        return entered

    def _feature(self, path: Path, level: int) -> tuple[Tensor | None, int]:
        """What a track holds of a node: its own state, or that level of an ancestor's slots."""
        if self.track is None or not path:
            return None, -1
        if self.track.name in self.world.outside:
            return self.world.outside[self.track.name].mean(0), 0
        memory = self.world.memory[self.track.name]
        if self.track.levels == 1:
            return memory.get(0, path, self.op.write) or (None, -1)
        while path and level < self.track.levels:
            if memory.get(0, path, self.op.write) is not None:
                return memory.get(level, path, self.op.write) or (None, -1)
            path, level = path[:-1], level + 1
        return None, -1

    def _reaches(self, path: Path, entered: Collection[Path]) -> bool:
        """Whether every token above is there, as far as the cache is to hold it."""
        if self.op.attend != "ancestors":
            return True
        begun = len(self.world.text)
        for size in range(1, len(path)):
            above = path[:size]
            if above in entered or (size <= begun and not self.complete):
                continue
            if self.memory.get(self.layers[0], above, self.op.write) is None:
                return False
        return True

    @property
    def complete(self) -> bool:
        """Whether every token above a node must be there in every layer.

        A layer attends to what entered it: text that was decoded without that layer is not there.
        Where the target's distribution is promised, the verifier leaves no such hole.
        """
        gaps = self.small or self.stack.optional_features or self.op.attend == "block"
        return self.op.cache is not None and not gaps and self.world.plan.assumptions.lossless

    def _keep(self, recorded: dict[int, States], last: States) -> None:
        """Record hidden states in a track: those that entered its layers, joined."""
        assert self.op.keep is not None
        track = self.world.plan.state(self.op.keep)
        assert isinstance(track, TrackState)
        layers = track.layer if isinstance(track.layer, tuple) else (track.layer,)
        if track.model != self.op.model:  # a head keeps its own last state for its next step
            layers = ("last",)
        memory = self.world.memory[self.op.keep]
        for path in last:
            level = path.count(SLOT)
            if level and track.levels == 1:
                continue
            parts = [
                (recorded.get(n, {}) if isinstance(n, int) else last).get(path) for n in layers
            ]
            there = [part for part in parts if part is not None]
            if len(there) == len(parts):
                fact = torch.cat(there), self.steps.get(path, 0)
                memory.put(level, path[: len(path) - level], fact, self.op.write)

    def _outputs(self, path: Path, name: str, levels: int, states: States) -> list[Tensor]:
        """Outputs of a node, one for each level."""
        step = self.steps.get(path, 0)
        if self.track is not None and self.track.levels > 1 and not self.layers:
            above, shift = path[: len(path) - self.op.shift], self.op.shift
            features = [self._feature(above, shift + level)[0] for level in range(levels)]
            return [self.stack.logits(f, path, name, 0) for f in features if f is not None]
        if name != "logits":
            own = states[path]
            return [own if name == "states" else self.stack.logits(own, path, name, step)]
        if self.stack.by_slots:
            slots = [path]
            while slots[-1] in states:
                slots.append((*slots[-1], SLOT))
            slots = slots[self.stack.slots_first : -1]
            return [self.stack.logits(states[one], path, name, step) for one in slots]
        return list(self.stack.level_logits(states[path], path, levels, step))


def read_early(world: OneRequest, cache: CacheState, text: Sequence[Path]) -> None:
    """Text that no round has read, for good."""
    for whole in readings(world.plan, cache):
        Pass(world, whole, ())._through(text)


def _paths(item: Picked) -> Iterable[Path]:
    return (item.tree.path(i) for i in item.numbers if i in item.tree.living)
