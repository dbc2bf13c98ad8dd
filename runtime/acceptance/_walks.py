"""Ways down a tree that several rules share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from specplan.runtime.acceptance.tree import DraftedTree, Judged, judged_of, judged_without_nodes
from specplan.runtime.masks import first_true, prefix
from specplan.runtime.sampling import draw

_HOST_NODES = 512
"""Up to this many nodes on the CPU, a walk on the host beats tensor ops."""

Choice = Callable[[int, int], int]
"""(batch row, node or -1 for the root) -> the token that the target chooses after it."""


def follow(tree: DraftedTree, choices: Tensor) -> Judged:
    """The path that spells the target's choices; among siblings with one token, the earliest.

    Args:
        tree: the drafted nodes.
        choices: tokens `[B, N + 1]`, column 0 after the root and column i + 1 after node i.
    """
    if choices.device.type == "cpu" and tree.tokens.numel() <= _HOST_NODES:
        chosen = choices.tolist()
        return follow_reference(tree, lambda row, node: chosen[row][node + 1])
    return follow_vectorised(tree, choices)


def follow_reference(tree: DraftedTree, choice: Choice) -> Judged:
    """`follow` as a walk down the tree, row by row."""
    tokens = tree.tokens.tolist()
    live = None if tree.live is None else tree.live.tolist()
    paths, bonuses = [], []
    for row, parents in enumerate(tree.parent_lists()):
        path: list[int] = []
        here, wanted = -1, choice(row, -1)
        # Parents precede children, so one pass over the nodes walks the whole path.
        for node, parent in enumerate(parents):
            if parent == here and tokens[row][node] == wanted:
                if live is not None and not live[row][node]:
                    continue
                path.append(node)
                here, wanted = node, choice(row, node)
        paths.append(path)
        bonuses.append(wanted)
    return judged_of(paths, bonuses, tree.depth, tree.tokens)


def follow_vectorised(tree: DraftedTree, choices: Tensor) -> Judged:
    """`follow` in tensor ops: at once where all requests have one shape, else level by level."""
    parents, live = tree.parent_tensor(), tree.live_mask()
    if tree.size and not isinstance(tree.parents, Tensor):
        hits = (tree.tokens == choices[:, (parents + 1)[0]]) & live
        return _path_of_hits(tree, tree.parents, hits, choices)
    here = torch.full_like(choices[:, :1], -1)
    steps = []
    accepted = torch.zeros_like(choices[:, 0])
    going = torch.ones_like(here, dtype=torch.bool)
    for _ in range(tree.depth):
        wanted = choices.gather(1, here + 1)
        hit = (parents == here) & live & (tree.tokens == wanted) & going
        going = hit.any(1, keepdim=True)
        child = first_true(hit)
        here = torch.where(going, child, here)
        steps.append(torch.where(going, child, -1))
        accepted = accepted + going[:, 0]
    path = torch.cat([tree.tokens[:, :0], *steps], 1)
    return Judged(path=path, accepted=accepted, bonus=choices.gather(1, here + 1)[:, 0])


def _path_of_hits(
    tree: DraftedTree, parents: tuple[int, ...], hits: Tensor, choices: Tensor
) -> Judged:
    """The path of nodes `[B, N]` whose tokens are chosen after their parents.

    A node is on it where it and all above it are the first of their siblings that are chosen.
    """
    nodes = torch.arange(tree.size, device=hits.device)
    if parents == tuple(range(-1, tree.size - 1)):
        path = nodes.where(prefix(hits), -1)
    else:
        elder, above, at = _kinship(parents, tree.depth, hits.device)
        hits = hits & ~(hits[:, None] & elder).any(2)
        reached = ~(~hits[:, None] & above).any(2)
        path = nodes.where(reached[:, None] & at, -1).amax(2)
    last = path.amax(1, keepdim=True)
    return Judged(path, (path >= 0).sum(1), choices.gather(1, last + 1)[:, 0])


def _kinship(parents: tuple[int, ...], levels: int, device: torch.device) -> tuple[Tensor, ...]:
    """Of each node `[N, N]`: its elder siblings, and itself and all above it; nodes of each level.

    Nodes of levels are `[levels, N]`, from the children of the root on.
    """
    size = len(parents)
    above: list[set[int]] = []
    for node, parent in enumerate(parents):
        above.append({node} | (above[parent] if parent >= 0 else set()))
    elder = [
        [one < node and parents[one] == parents[node] for one in range(size)]
        for node in range(size)
    ]
    lines = [[one in own for one in range(size)] for own in above]
    at = [[len(own) == level + 1 for own in above] for level in range(levels)]
    return tuple(torch.tensor(table, device=device) for table in (elder, lines, at))


def descend(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor,
    judge: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Judged:
    """Judge the children of the node reached, level by level; the bonus is drawn where it ends.

    Args: tree: the drafted nodes. target: probabilities `[B, N + 1, V]`. uniforms: `[B, N + 1]`;
        the last draws the bonus. judge: from children `[B, N]` and the target's probabilities at
        their parent `[B, V]` to the accepted
            child `[B, 1]` or -1, and the residual `[B, V]` when none is.
    """
    if tree.size == 0:
        return judged_without_nodes(tree, draw(target[:, 0], uniforms[:, -1]))
    parents = tree.parent_tensor()
    here = torch.full_like(tree.tokens[:, :1], -1)
    going = torch.ones_like(here, dtype=torch.bool)
    residual = target[:, 0]
    steps = []
    for _ in range(tree.depth):
        children = (parents == here) & going
        chosen, residual = judge(children, residual)
        going = chosen >= 0
        here = torch.where(going, chosen, here)
        steps.append(chosen)
        probs = target.gather(1, (here + 1)[:, :, None].expand(-1, -1, target.shape[2]))[:, 0]
        residual = torch.where(going, probs, residual)
    path = torch.cat(steps, 1)
    return Judged(path=path, accepted=(path >= 0).sum(1), bonus=draw(residual, uniforms[:, -1]))


def descend_reference(
    tree: DraftedTree,
    target: Tensor,
    uniforms: Tensor,
    judge: Callable[[int, list[int], Tensor], tuple[int | None, Tensor]],
) -> Judged:
    """`descend` row by row; `judge` takes row, children and probabilities."""
    paths, bonuses = [], []
    for row, parents in enumerate(tree.parent_lists()):
        path: list[int] = []
        while True:
            here = path[-1] if path else -1
            children = [node for node, parent in enumerate(parents) if parent == here]
            chosen, residual = judge(row, children, target[row, here + 1])
            if chosen is None:
                break
            path.append(chosen)
        paths.append(path)
        bonuses.append(int(draw(residual, uniforms[row, -1])))
    return judged_of(paths, bonuses, tree.depth, tree.tokens)


def node_depths(tree: DraftedTree) -> Tensor:
    """Edges from the root to the root (0) and to every node, int64 `[B, N + 1]`."""
    above = tree.parent_tensor() + 1
    depths = tree.tokens.new_zeros(tree.tokens.shape[0], tree.size + 1)
    for _ in range(tree.depth):
        depths = torch.cat([depths[:, :1], depths.gather(1, above) + 1], 1)
    return depths


def of_nodes(tree: DraftedTree, rows: Tensor) -> Tensor:
    """What the rows `[B, N + 1, V]` of their parents say of the nodes' tokens, `[B, N]`."""
    places = (tree.parent_tensor() + 1) * rows.shape[2] + tree.tokens
    return rows.flatten(1).gather(1, places)


def ranks(tree: DraftedTree, rows: Tensor) -> Tensor:
    """How many tokens their parents' rows `[B, N + 1, V]` hold likelier than the nodes', `[B, N]`.

    Of equal tokens the lower id counts as likelier, as everywhere.
    """
    own = of_nodes(tree, rows)[:, :, None]
    above = (tree.parent_tensor() + 1)[:, :, None].expand(-1, -1, rows.shape[2])
    rows = rows.gather(1, above)
    tokens = torch.arange(rows.shape[2], device=rows.device)
    return ((rows > own) | ((rows == own) & (tokens < tree.tokens[:, :, None]))).sum(-1)


def token_ranks(rows: Tensor) -> Tensor:
    """How many tokens each row `[..., V]` holds likelier than each, `[..., V]`; ties as `ranks`."""
    order = rows.sort(dim=-1, descending=True, stable=True).indices
    return order.argsort(-1)


def deepest(tree: DraftedTree, passed: Tensor, scores: Tensor, choices: Tensor) -> Judged:
    """The longest path of nodes that all passed; among equals the best scored, then the earliest.

    Args:
        tree: the drafted nodes.
        passed: bool `[B, N]`.
        scores: `[B, N]`; those of a path add up.
        choices: the bonus after the root and after every node, `[B, N + 1]`.
    """
    if tree.size == 0:
        return judged_without_nodes(tree, choices[:, 0])
    parents = tree.parent_tensor()
    own, passes = scores.double().clamp(min=-1e30), passed & tree.live_mask()
    root = torch.zeros_like(own[:, :1])
    stands, total = passes, own
    for _ in range(tree.depth - 1):
        stands = passes & torch.cat([root == 0, stands], 1).gather(1, parents + 1)
        total = own + torch.cat([root, total], 1).gather(1, parents + 1)
    return longest(tree, stands, total, choices)


def longest(tree: DraftedTree, stands: Tensor, total: Tensor, choices: Tensor) -> Judged:
    """The longest path whose last node stands, and so all above it; see `deepest`.

    Args:
        tree: the drafted nodes, at least one.
        stands: bool `[B, N]`.
        total: scores of whole paths `[B, N]`.
        choices: the bonus after the root and after every node, `[B, N + 1]`.
    """
    parents = tree.parent_tensor()
    depths = node_depths(tree)[:, 1:].where(stands, 0)
    length = depths.amax(1, keepdim=True)
    among = stands & (depths == length)
    best = total.where(among, -torch.inf).argmax(1, keepdim=True)
    node = best.where(length > 0, -1)
    steps = [node]
    for _ in range(tree.depth - 1):
        above = parents.gather(1, steps[-1].clamp(min=0))
        steps.append(above.where(steps[-1] >= 0, -1))
    climbed = torch.cat(steps, 1)
    place = length - 1 - torch.arange(tree.depth, device=node.device)
    path = climbed.gather(1, place.clamp(min=0)).where(place >= 0, -1)
    return Judged(path=path, accepted=length[:, 0], bonus=choices.gather(1, node + 1)[:, 0])


def by_nodes(
    passing: Callable[..., tuple[Tensor, Tensor]], passes: Callable[..., tuple[bool, float]]
) -> tuple[Callable[..., Judged], Callable[..., Judged], Callable[..., Judged]]:
    """`accept`, `accept_vectorised` and `accept_reference` of a rule that judges node by node.

    The longest path of nodes that all passed is kept, and the bonus is the target's first choice.

    Args:
        passing: (tree, target, parameters) to which nodes pass, and their scores, `[B, N]` each.
        passes: (one row of the target `[V]`, a token below it, parameters) to the same of a node.
    """

    @wraps(passing)
    def accept(
        tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None, **given: float
    ) -> Judged:
        return deepest(tree, *passing(tree, target, **given), target.argmax(-1))

    @wraps(passes)
    def accept_reference(
        tree: DraftedTree, target: Tensor, uniforms: Tensor | None = None, **given: float
    ) -> Judged:
        def judge(row: int, parent: int, token: int) -> tuple[bool, float]:
            return passes(target[row, parent + 1], token, **given)

        return _deepest_reference(tree, judge, target.argmax(-1))

    return accept, accept, accept_reference


def _deepest_reference(
    tree: DraftedTree, judge: Callable[[int, int, int], tuple[bool, float]], choices: Tensor
) -> Judged:
    """`deepest` node by node; `judge` takes (row, parent or -1, token)."""
    paths, bonuses = [], []
    live, tokens = tree.live_mask(), tree.tokens.tolist()
    for row, parents in enumerate(tree.parent_lists()):
        standing: dict[int, tuple[list[int], float]] = {-1: ([], 0.0)}
        best: list[int] = []
        total = 0.0
        for node, parent in enumerate(parents):
            if parent not in standing or not live[row, node]:
                continue
            passed, score = judge(row, parent, tokens[row][node])
            if not passed:
                continue
            path, above = standing[parent]
            standing[node] = [*path, node], max(score, -1e30) + above
            if (len(path) + 1, standing[node][1]) > (len(best), total):
                best, total = standing[node]
        paths.append(best)
        bonuses.append(int(choices[row, best[-1] + 1 if best else 0]))
    return judged_of(paths, bonuses, tree.depth, tree.tokens)
