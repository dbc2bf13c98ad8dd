"""What the target draws at the nodes of a tree by races that the draft may run as well."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from specplan.runtime.acceptance._walks import (
    Choice,
    follow,
    follow_reference,
    follow_vectorised,
    node_depths,
)
from specplan.runtime.acceptance.tree import DraftedTree, Judged
from specplan.runtime.races import COUPLINGS, drawn_alike

RuleForm = Callable[[DraftedTree, Tensor, Tensor], Judged]


def by_race(how: str) -> tuple[RuleForm, RuleForm, RuleForm]:
    """`accept`, `accept_vectorised` and `accept_reference` of what the target draws by a race.

    Target rows are probabilities `[B, N + 1, V]`, uniforms `[B, N + 1]`: number d draws what
    follows nodes at depth d.

    Args:
        how: of the race, as `grow how=` has it.
    """
    return (
        lambda tree, target, uniforms: follow(tree, _raced(how, tree, target, uniforms)),
        lambda tree, target, uniforms: follow_vectorised(tree, _raced(how, tree, target, uniforms)),
        lambda tree, target, uniforms: follow_reference(
            tree, _raced_at(how, tree, target, uniforms)
        ),
    )


def _raced(how: str, tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Tensor:
    """What the target draws after the root and after every node, `[B, N + 1]`.

    Args:
        how: of the race, as `grow how=` has it.
        tree: the drafted nodes.
        target: probabilities `[B, N + 1, V]`.
        uniforms: `[B, N + 1]`; number d draws what follows nodes at depth d.
    """
    noise_of, first = COUPLINGS[how]
    noise = noise_of(uniforms[:, : tree.depth + 1], target.shape[2])
    depths = node_depths(tree)
    places = depths.reshape(*depths.shape, *(1 for _ in noise.shape[2:]))
    return first(target, noise.gather(1, places.expand(-1, -1, *noise.shape[2:])), 1)[:, :, 0]


def _raced_at(how: str, tree: DraftedTree, target: Tensor, uniforms: Tensor) -> Choice:
    """The same at one node of a row, drawn when it is asked for; -1 is the root."""
    depths = node_depths(tree).tolist()

    def choice(row: int, node: int) -> int:
        number = uniforms[row, depths[row][node + 1]]
        return int(drawn_alike(how, target[row, node + 1], number))

    return choice
