"""Values that lowerings pass on: drafted trees, nodes of them, logits, accepted paths.

There is one form of tree. Column 0 is the root, the last token of the text; drafted nodes follow,
parents before children. Every field is a tensor `[B, 1 + N]`. Requests whose trees are smaller or
have other shapes have dead columns and parents of their own. A node is the path of tokens from the
begin of the text to it, and its key is a hash of that path: nodes of two trees, or of a tree and a
cache, are the same if their keys are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, is_
from typing import TypeAlias

import torch
from torch import Tensor

from specplan.backends.ops.tensors.keys import places_of

FIELDS = ("tokens", "parents", "depths", "live", "keys", "probs_row", "own", "scores")
"""Fields of a tree that are tensors of its columns."""
Fields: TypeAlias = tuple[Tensor | None, ...]
"""These tensors, `[B, 1 + N]` each."""
_fields = attrgetter(*FIELDS)


@dataclass(frozen=True, eq=False)
class Tree:
    """Drafted nodes of all requests.

    Attributes:
        tokens: int64 `[B, 1 + N]`; that of the root is the last of the text.
        parents: columns, int64 `[B, 1 + N]`; the root's is itself.
        depths: edges from the root, int64 `[B, 1 + N]`.
        live: bool `[B, 1 + N]`; all nodes below a dead node are dead.
        keys: of the nodes' paths, int64 `[B, 1 + N]`.
        probs_row: row of `probs` that the node was drawn from, -1 for nodes that were ranked, found
            or given, int64 `[B, 1 + N]`.
        probs: probabilities that nodes were drawn from, blocks of `[B, Q, V]` one after another.
        own: log-probability of each token by the logits that it was taken from, `[B, 1 + N]`; None
            where no round of the plan asks for scores.
        scores: the same summed along the path.
        levels: no node is deeper.
        distinct: siblings were drawn without replacement.
        newest: columns that the last op added; the root's alone at first.
        widest: no node has more children.
        tips: columns that are known to have none: the level that was added last.
        chain: no node has two children.
        layered: every level was grown below nodes of the one before, no two siblings alike. So
            depths rise from column to column, dead ones aside, and no two nodes are the same.
        sure: no node is dead because its parent had no logits.
        in_order: of a chain, every live node stands in the column of its depth.
        grown: fields of the tree that it was grown from in one step, and its own at that time.
        logits: those that its nodes' children were grown from, where a later `mix` reads them.
        noise: perturbed log-probabilities `[B, Q, 1]` of paths that were drawn without replacement.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    live: Tensor
    keys: Tensor
    probs_row: Tensor
    probs: tuple[Tensor, ...] = ()
    own: Tensor | None = None
    scores: Tensor | None = None
    levels: int = 0
    distinct: bool = False
    newest: range = range(1)
    widest: int = 0
    tips: range = range(0)
    chain: bool = True
    layered: bool = False
    in_order: bool = True
    sure: bool = True
    grown: tuple[Fields, Fields] | None = None
    logits: tuple[Logits, ...] = ()
    noise: tuple[Logits, ...] = ()

    @property
    def fields(self) -> Fields:
        """The tensors of the columns, in the order of `FIELDS`."""
        fields: Fields = _fields(self)
        return fields

    def changed(self, change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Each tensor of the columns after a change, by the name of the field."""
        fields = zip(FIELDS, self.fields, strict=True)
        return {name: change(field) for name, field in fields if field is not None}

    def was_grown_from(self, other: Tree) -> bool:
        """Whether its columns are known to be those of another tree and more."""
        if self.grown is None:
            return False
        above, mine = self.grown
        return all(map(is_, above, other.fields)) and all(map(is_, mine, self.fields))

    @property
    def columns(self) -> int:
        """1 + N."""
        return self.tokens.shape[1]

    @property
    def size(self) -> int:
        """Drafted nodes, N."""
        return self.tokens.shape[1] - 1

    @property
    def probs_count(self) -> int:
        """Vectors of all blocks of `probs`, Q."""
        return sum(block.shape[1] for block in self.probs)

    @property
    def all_probs(self) -> Tensor | None:
        """All blocks of `probs` as one, `[B, Q, V]`; None where no node was drawn."""
        if len(self.probs) > 1:  # joined once, and the blocks are free
            object.__setattr__(self, "probs", (torch.cat(self.probs, 1),))
        return self.probs[0] if self.probs else None

    @property
    def everything(self) -> Nodes:
        """The root and all nodes; not stored: a cycle would keep the tree alive after its round."""
        return Nodes(self, range(self.columns))

    def are_tips(self, nodes: Nodes) -> bool:
        """Whether nodes are known to have no children."""
        at = nodes.among if nodes.among is not None else nodes.at
        if not isinstance(at, range):
            return False
        return self.tips.start <= at.start and at.stop <= self.tips.stop

    def widest_below(self, nodes: Nodes, children: int) -> int:
        """A bound of the children of one node after each of some nodes gets `children` more."""
        return max(self.widest, children) if self.are_tips(nodes) else self.widest + children

    def lines(self, nodes: Tensor) -> Tensor:
        """Columns `[B, W]` and their ancestors, `[B, W, levels]`; shorter lines end in roots."""
        steps = [nodes]
        for _ in range(self.levels - 1):
            steps.append(self.parents.gather(1, steps[-1]))
        return torch.stack(steps, 2)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes of a tree.

    Attributes:
        tree: whose nodes.
        at: columns, the same for all requests (a range) or int64 `[B, W]`.
        chosen: bool `[B, W]`, which of them are meant; None for all that live.
        root: the root may be among them.
        among: columns that data has chosen them from, where that is known.
        after: of tips of a chain, its columns when they were tips: what was grown since is below.
    """

    tree: Tree
    at: range | Tensor
    chosen: Tensor | None = None
    root: bool = True
    among: range | None = None
    after: int = 0

    @property
    def width(self) -> int:
        """How many at most, W."""
        return len(self.at) if isinstance(self.at, range) else self.at.shape[1]

    def take(self, fields: Tensor) -> Tensor:
        """Their entries of a tensor `[B, 1 + N]`: `[B, W]`."""
        if isinstance(self.at, range):
            return part(fields, self.at.start, self.at.stop)
        return fields.gather(1, self.at)

    def same(self, other: Nodes | None) -> bool:
        """Whether others are known to be the same columns of the same tree, whatever they hold."""
        if other is None or self.tree is not other.tree or self.chosen is not other.chosen:
            return False
        ranges = isinstance(self.at, range) and isinstance(other.at, range)
        return self.at == other.at if ranges else self.at is other.at

    def live_in(self, tree: Tree) -> Tensor:
        """Which of them live in a tree that theirs has become, bool `[B, W]`."""
        return self.live if self.tree is tree else self.live & self.take(tree.live)

    def is_last_of(self, tree: Tree) -> bool:
        """Whether it is the last column of a tree, whatever the request."""
        return isinstance(self.at, range) and self.at == range(tree.columns - 1, tree.columns)

    @cached_property
    def columns(self) -> Tensor:
        """Columns, int64 `[B, W]`."""
        if isinstance(self.at, Tensor):
            return self.at
        like = self.tree.tokens
        columns = torch.arange(self.at.start, self.at.stop, device=like.device)
        return columns.expand(like.shape[0], -1)

    @cached_property
    def keys(self) -> Tensor:
        """Keys, int64 `[B, W]`."""
        return self.take(self.tree.keys)

    @cached_property
    def live(self) -> Tensor:
        """Which of them live, bool `[B, W]`."""
        live = self.take(self.tree.live)
        return live if self.chosen is None else live & self.chosen


@dataclass(frozen=True, eq=False)
class Logits:
    """One vector for each of some nodes.

    Attributes:
        keys: of the nodes, int64 `[B, R]`.
        values: `[B, R, V]`: logits over the target's vocabulary, or scores `[B, R, 1]`.
        live: bool `[B, R]`, which of the vectors exist.
        nodes: the nodes, where they are the same columns for all requests.
        sure: all live ones of these nodes have a vector.
        deeper: of the same nodes, logits that look one token further ahead, two, and so on.
        mask: what a request's grammar leaves of logits `[B, W, V]` of nodes; those of the nodes
            themselves are masked already.
    """

    keys: Tensor
    values: Tensor
    live: Tensor
    nodes: Nodes | None = None
    sure: bool = True
    deeper: tuple[Logits, ...] = ()
    mask: Callable[[Tensor, Nodes], Tensor] | None = None

    def of(self, wanted: Nodes) -> tuple[Tensor, Tensor]:
        """Vectors `[B, W, V]` of nodes, arbitrary where there is none; and which exist."""
        if wanted.same(self.nodes):
            return self.values, wanted.live if self.sure else self.live
        place, there = places_of(wanted.keys, self.keys, self.live)
        vectors = self.values.gather(1, place[:, :, None].expand(-1, -1, self.values.shape[2]))
        return vectors, there

    def ahead(self, wanted: Nodes) -> tuple[Tensor, Tensor]:
        """Vectors of nodes: their own, or those of the nearest ancestor that has some.

        An ancestor contributes the level that looks as many tokens ahead as it stands above the
        node; there is no vector where it does not look that far.
        """
        vectors, there = self.of(wanted)
        column, settled = wanted.columns, there
        for level in self.deeper:
            column = wanted.tree.parents.gather(1, column)
            above = Nodes(wanted.tree, column)
            values, known = level.of(above)
            settles = ~settled
            vectors = torch.where((settles & known)[:, :, None], values, vectors)
            there = there | (settles & known)
            settled = settled | self.of(above)[1]
        return (vectors if self.mask is None else self.mask(vectors, wanted)), there


@dataclass(frozen=True, eq=False)
class Path:
    """The accepted nodes of a tree, and the token after them.

    Attributes:
        nodes: columns of accepted nodes from the top, int64 `[B, D]`; any number behind them.
        tree_keys: of all columns of the tree, int64 `[B, 1 + N]`.
        tokens: of the accepted nodes and the bonus, int64 `[B, D + 1]`; any number behind them.
        accepted: accepted nodes, int64 `[B]`.
        counts: tokens, int64 `[B]`: one more where there is a bonus.
        start: the column below which was judged, int64 `[B, 1]`.
    """

    nodes: Tensor
    tree_keys: Tensor
    tokens: Tensor
    accepted: Tensor
    counts: Tensor
    start: Tensor

    @property
    def keys(self) -> Tensor:
        """Of the accepted nodes, int64 `[B, D]`; any behind them."""
        return self.tree_keys.gather(1, self.nodes)


def part(fields: Tensor, start: int, stop: int | None = None) -> Tensor:
    """Columns `start` to `stop` of a tensor; itself where these are all, without an op."""
    stop = fields.shape[1] if stop is None else stop
    whole = start == 0 and stop == fields.shape[1]
    return fields if whole else fields[:, start:stop]


def nodes_of(given: Tree | Nodes) -> Nodes:
    """Nodes; a tree stands for the root and all its nodes."""
    return given.everything if isinstance(given, Tree) else given
