"""Source `trie`: branches of tokens with their counts, from prompts and outputs.

Lookahead (Zhao et al. 2023, arXiv 2312.12728, section 4.2): every run of `last` tokens is inserted
as a branch; the branches of a prompt are eliminated when its request ends; when the trie is full,
counts are halved and nodes that are left with none are pruned. A tree is looked up below the
longest match, then below shorter ones while there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import ClassVar

from specplan.runtime.sources.source import ROOT, Source, SourceDrafts, Tokens, Wanted

_NODE_BYTES = 420
"""Of CPython: a dictionary with a child or two, an entry in the parent's, a count."""


class Trie(Source):
    """Counted runs of tokens.

    Attributes:
        capacity: nodes kept.
    """

    learns: ClassVar[tuple[str, ...]] = ("text",)
    merges: ClassVar[bool] = True

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._children: list[dict[int, int]] = [{}]
        self._counts = [0]
        self._ends: dict[int, list[int]] = {}  # by key, the open branches, the longest first
        self._prompts: dict[int, int] = {}
        self._prompt_runs: dict[int, tuple[list[int], int]] = {}  # by key, its prompt and `last`

    @property
    def nodes(self) -> int:
        """Nodes, the empty run not counted."""
        return len(self._counts) - 1

    @property
    def most_bytes(self) -> float:
        """All nodes, and those of one text before they are pruned."""
        return float(self.capacity * _NODE_BYTES)

    def begin(self, prompt: int) -> int:
        """A key for a text; the branches of its prompt are eliminated in the end."""
        key = super().begin(prompt)
        self._prompts[key] = prompt
        return key

    def learn_text(self, key: int, text: Tokens, last: int) -> None:
        """Insert the branches that end in new tokens."""
        start = self._grown(key, text)
        if start == 0 and key in self._prompts:
            self._prompt_runs[key] = text[: self._prompts[key]].tolist(), last
        for token in text[start:].tolist():
            open_ends = self._ends.get(key, [])[1 - last :] if last > 1 else []
            self._ends[key] = [self._counted(end, token) for end in (*open_ends, 0)]
            if self.nodes > self.capacity:
                self._prune()

    def close(self, key: int) -> None:
        """Eliminate the branches of the text's prompt."""
        super().close(key)
        self._ends.pop(key, None)
        self._prompts.pop(key, None)
        prompt, last = self._prompt_runs.pop(key, ([], 1))
        for start in range(len(prompt)):
            self._eliminate(prompt[start : start + last])

    def lookup(self, texts: Tokens, lengths: Tokens, wanted: Wanted) -> SourceDrafts:
        """The commonest branches below what matches."""
        drafts = SourceDrafts.nothing(len(texts), wanted)
        for row, length in enumerate(lengths.tolist()):
            suffix = texts[row, max(0, length - wanted.longest) : length].tolist()
            matches = self._matches(suffix, wanted.shortest)
            if wanted.nodes is None:
                self._put_separate(drafts, row, matches, wanted)
            else:
                self._put_merged(drafts, row, matches, wanted)
        return drafts

    def _counted(self, node: int, token: int) -> int:
        """The child of a node, seen once more."""
        child = self._children[node].get(token)
        if child is None:
            child = self._children[node][token] = len(self._counts)
            self._children.append({})
            self._counts.append(0)
        self._counts[child] += 1
        return child

    def _eliminate(self, branch: list[int]) -> None:
        """Count a branch once less; what is left with nothing goes with all below it."""
        node = 0
        for token in branch:
            child = self._children[node].get(token)
            if child is None:
                return
            self._counts[child] -= 1
            if self._counts[child] <= 0:
                del self._children[node][token]
                return
            node = child

    def _prune(self) -> None:
        """Halve the counts until a quarter of the room is free; open branches begin anew."""
        left = self.capacity * 3 // 4
        self._ends.clear()
        while True:
            children: list[dict[int, int]] = [{}]
            counts = [0]
            todo = [(0, 0)]
            while todo:
                old, new = todo.pop()
                for token, child in self._children[old].items():
                    if self._counts[child] > 1:
                        children[new][token] = len(counts)
                        todo.append((child, len(counts)))
                        children.append({})
                        counts.append(self._counts[child] // 2)
            self._children, self._counts = children, counts
            if self.nodes <= left:
                return

    def _matches(self, suffix: list[int], shortest: int) -> Iterator[int]:
        """Nodes with children whose run ends the text, longer runs first."""
        for start in range(len(suffix) - shortest + 1):
            node = 0
            for token in suffix[start:]:
                node = self._children[node].get(token, 0)
                if not node:
                    break
            if node and self._children[node]:
                yield node

    def _put_separate(
        self, drafts: SourceDrafts, row: int, matches: Iterator[int], wanted: Wanted
    ) -> None:
        """Continuations of the longest match, each the commonest one of its first token."""
        match = next(matches, None)
        if match is None:
            return
        first = sorted(self._children[match].items(), key=lambda item: -self._counts[item[1]])
        for index, (token, child) in enumerate(first[: wanted.children]):
            slot = index * wanted.length
            for step in range(wanted.length):
                drafts.put(row, slot + step, token, slot + step - 1 if step else ROOT)
                if not self._children[child]:
                    break
                below = self._children[child].items()
                token, child = max(below, key=lambda item: self._counts[item[1]])

    def _put_merged(
        self, drafts: SourceDrafts, row: int, matches: Iterator[int], wanted: Wanted
    ) -> None:
        """The commonest nodes below the longest match, then what shorter ones add."""
        slots: dict[tuple[int, int], int] = {}  # slot of the parent and token -> slot
        parents: set[int] = set()
        tips = 0
        for match in matches:
            heap: list[tuple[int, int, int, int, int, int]] = []
            self._push(heap, match, 1, ROOT)
            while heap and len(slots) < wanted.size:
                _, depth, _, token, node, parent = heappop(heap)
                slot = slots.get((parent, token))
                if slot is None:
                    branches = parent == ROOT or parent in parents
                    if branches and tips == wanted.children:
                        continue
                    tips += branches
                    parents.add(parent)
                    slot = slots[parent, token] = len(slots)
                    drafts.put(row, slot, token, parent)
                if depth < wanted.length:
                    self._push(heap, node, depth + 1, slot)
            if len(slots) == wanted.size:
                return

    def _push(
        self, heap: list[tuple[int, int, int, int, int, int]], node: int, depth: int, slot: int
    ) -> None:
        for token, child in self._children[node].items():
            heappush(heap, (-self._counts[child], depth, child, token, child, slot))


SOURCE = Trie
