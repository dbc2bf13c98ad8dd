"""`when`, and loops that end by request: request by request one of two values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from operator import is_
from typing import Any, TypeAlias

import torch
from torch import Tensor

from specplan.backends.ops.tensors.trees import padded_to
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree

Value: TypeAlias = Tree | Nodes | Logits | Path | Tensor


def when(flag: Tensor, entered: Value, otherwise: Value) -> Value:
    """What was made where a flag holds, and what there was for the others.

    Args:
        flag: bool `[B]`.
        entered: a value.
        otherwise: another of the same kind.
    """
    if entered is otherwise:
        return entered
    if isinstance(entered, Tensor) and isinstance(otherwise, Tensor):
        flag = flag.to(entered.device)
        return torch.where(flag if entered.dim() == 1 else flag[:, None], entered, otherwise)
    if isinstance(entered, Tree) and isinstance(otherwise, Tree):
        return _tree(flag, entered, otherwise)
    if isinstance(entered, Logits) and isinstance(otherwise, Logits):
        return _logits(flag, entered, otherwise)
    if isinstance(entered, Nodes) and isinstance(otherwise, Nodes):
        return _nodes(flag, entered, otherwise)
    assert isinstance(entered, Path) and isinstance(otherwise, Path), "the verifier sees to it"
    return _path(flag, entered, otherwise)


def _tree(flag: Tensor, entered: Tree, otherwise: Tree) -> Tree:
    if entered.was_grown_from(otherwise):  # what is new is dead where the flag does not hold
        new = torch.arange(entered.columns, device=entered.live.device) >= otherwise.columns
        return replace(entered, live=entered.live & (flag.to(new.device)[:, None] | ~new))
    longer, shorter = entered, otherwise
    if entered.columns < otherwise.columns:
        longer, shorter = otherwise, entered
    bare = longer.tips == shorter.tips or longer.tips.start >= shorter.columns
    entered = padded_to(entered, otherwise.columns)
    otherwise = padded_to(otherwise, entered.columns)
    chosen = flag.to(entered.tokens.device)[:, None]
    known = otherwise.probs
    if _begins_with(entered.probs, known):  # it was grown from the other
        probs, moved = entered.probs, entered.probs_row
    else:
        probs, moved = (*known, *entered.probs), entered.probs_row
        moved = torch.where(moved >= 0, moved + otherwise.probs_count, moved)
    fields: dict[str, Any] = {
        name: torch.where(chosen, getattr(entered, name), getattr(otherwise, name))
        for name in ("tokens", "parents", "depths", "live", "keys", "own", "scores")
        if getattr(entered, name) is not None
    }
    return replace(
        entered,
        **fields,
        probs_row=torch.where(chosen, moved, otherwise.probs_row),
        probs=probs,
        levels=max(entered.levels, otherwise.levels),
        distinct=entered.distinct or otherwise.distinct,
        newest=longer.newest,
        widest=max(entered.widest, otherwise.widest),
        tips=longer.tips if bare else range(0),
        chain=entered.chain and otherwise.chain,
        layered=entered.layered and otherwise.layered,
        in_order=entered.in_order and otherwise.in_order,
        sure=entered.sure and otherwise.sure,
        logits=_joined(entered.logits, otherwise.logits),
        noise=_joined(entered.noise, otherwise.noise),
    )


def _joined(entered: tuple[Logits, ...], otherwise: tuple[Logits, ...]) -> tuple[Logits, ...]:
    return entered if _begins_with(entered, otherwise) else (*otherwise, *entered)


def _begins_with(longer: Sequence[object], shorter: Sequence[object]) -> bool:
    first = longer[: len(shorter)]
    return len(first) == len(shorter) and all(map(is_, first, shorter))


def _logits(flag: Tensor, entered: Logits, otherwise: Logits) -> Logits:
    chosen = flag.to(entered.live.device)[:, None]
    if entered.keys.shape == otherwise.keys.shape:
        shared = entered.nodes is not None and entered.nodes.same(otherwise.nodes)
        nodes = entered.nodes if shared else None
        return Logits(
            torch.where(chosen, entered.keys, otherwise.keys),
            torch.where(chosen[:, :, None], entered.values, otherwise.values),
            torch.where(chosen, entered.live, otherwise.live),
            nodes,
            entered.sure and otherwise.sure,
        )
    return Logits(
        torch.cat([entered.keys, otherwise.keys], 1),
        torch.cat([entered.values, otherwise.values], 1),
        torch.cat([entered.live & chosen, otherwise.live & ~chosen], 1),
        sure=entered.sure and otherwise.sure,
    )


def _nodes(flag: Tensor, entered: Nodes, otherwise: Nodes) -> Nodes:
    """Of one tree; those of one of the two alone are not meant where the other is."""
    chosen = flag.to(entered.live.device)[:, None]
    columns = torch.cat([entered.columns, otherwise.columns], 1)
    meant = torch.cat([entered.live & chosen, otherwise.live & ~chosen], 1)
    return Nodes(entered.tree, columns, meant, root=entered.root or otherwise.root)


def _path(flag: Tensor, entered: Path, otherwise: Path) -> Path:
    flag = flag.to(entered.nodes.device)

    def chosen(name: str) -> Tensor:
        one, other = getattr(entered, name), getattr(otherwise, name)
        if one.dim() == 1:
            return torch.where(flag, one, other)
        width, pad = max(one.shape[1], other.shape[1]), torch.nn.functional.pad
        one, other = (pad(each, (0, width - each.shape[1])) for each in (one, other))
        return torch.where(flag[:, None], one, other)

    return Path(**{field.name: chosen(field.name) for field in fields(Path)})
