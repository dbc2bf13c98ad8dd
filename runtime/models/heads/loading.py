"""Heads from checkpoints: every tensor of a file has a place, and every place a tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.files.safetensors_headers import (
    read_config,
    stored_tensors,
    weight_files,
)
from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.own_modules import mtp
from specplan.cost_models.models.heads.reading import read_description
from specplan.ir.errors import UsageError
from specplan.ir.files import model_digest
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter

VOCABULARY = ("offsets", "members", "token_map")
"""Tensors that say which of the target's tokens a head knows; no weights."""
_PICKLED = (".bin", ".pt", ".pth")


def load_head(folder: Path | str, target: CausalModel) -> Drafter:
    """Load a head from local files only.

    Args:
        folder: config.json and safetensors in one of the public formats.
        target: the target it was trained for, in whose number type and on whose device it runs.

    Raises:
        UsageError: the folder is wrong, a tensor is unknown or missing, or the head is one for
            another target.
        MissingCapabilityError: a form of a head that is not run; names it.
    """
    folder = Path(folder)
    digest, stored = model_digest(folder), stored_tensors(folder)
    if not stored:
        raise _without_weights(folder)
    description = read_description(read_config(folder), target, str(folder))
    head = _built(description, target, folder, frozenset(stored))
    head.name, head.digest = folder.resolve().name, digest
    return head


def load_module(folder: Path | str, target: CausalModel, index: int) -> Drafter:
    """Load a multi-token-prediction module from its target's checkpoint.

    Args:
        folder: of the target.
        target: loaded from there.
        index: of the module, from 0.

    Raises:
        UsageError: the files hold no such module, or tensors are unknown or missing.
        MissingCapabilityError: its layer is of a kind that is not run.
    """
    folder = Path(folder)
    stored = stored_tensors(folder)
    description = mtp(Config(read_config(folder), str(folder)), target, index, stored)
    head = _built(description, target, folder, frozenset(stored))
    head.name = f"{folder.resolve().name} module {index}"
    head.digest = sha256(f"{target.digest} drafter {index}".encode()).hexdigest()
    return head


def _without_weights(folder: Path) -> UsageError:
    pickled = [path.name for path in folder.iterdir() if path.suffix in _PICKLED]
    if pickled:
        return UsageError(
            f"{pickled[0]} is a pickle, which can run code when it is read",
            where=str(folder),
            remedy="Save its tensors by safetensors.torch.save_file as model.safetensors.",
        )
    return UsageError(
        "the folder holds no weights", where=str(folder), remedy="Download them (*.safetensors)."
    )


def _built(
    description: HeadDescription, target: CausalModel, folder: Path, stored: frozenset[str]
) -> Drafter:
    """A head with its weights."""
    places = places_of(description, stored, folder)
    if description.embedding == "either":
        own = "embedding.weight" in places.values()
        description = replace(description, embedding="own" if own else "target")
    _check_embedding(description, target, folder)
    head = Drafter(description, target)
    tensors = _read(folder, places)
    tokens = vocabulary_of(description, tensors, str(folder))
    if tokens is not None:
        head.outputs.tokens = tokens.to(head.device)
    _fill(head, tensors, str(folder))
    head.requires_grad_(False).eval()
    return head


def _check_embedding(description: HeadDescription, target: CausalModel, folder: Path) -> None:
    borrowed = description.embedding == "target" and description.join not in ("feature", "sum")
    own = description.reads.width if description.join in ("stack", "recurrent") else None
    if borrowed and (own or description.hidden_size) != target.hidden_size:
        raise UsageError(
            f"it borrows the target's embedding of width {target.hidden_size}, and its own width "
            f"is {description.hidden_size}",
            where=str(folder),
            remedy="Take a checkpoint that holds embed_tokens.weight.",
        )


def places_of(description: HeadDescription, stored: frozenset[str], folder: Path) -> dict[str, str]:
    """Which weight each tensor of the files is; those that are left out do not occur.

    Raises:
        UsageError: names tensors that the format does not have.
    """
    places, unknown = dict[str, str](), list[str]()
    rules = [(re.compile(pattern), into) for pattern, into in description.names]
    for name in sorted(stored):
        matches = ((pattern.fullmatch(name), into) for pattern, into in rules)
        place = next((match.expand(into) for match, into in matches if match), None)
        if place is None:
            unknown.append(name)
        elif place:
            places[name] = place
    if unknown:
        raise UsageError(
            f"{len(unknown)} tensors are not of the format {description.family}: "
            f"{', '.join(unknown[:5])}",
            where=str(folder),
            remedy="Check that config.json and weights are of the same checkpoint.",
        )
    return places


def _read(folder: Path, places: Mapping[str, str]) -> dict[str, list[Tensor]]:
    """Tensors by the weight that they are; copies of one weight stand side by side."""
    from safetensors import safe_open

    tensors: dict[str, list[Tensor]] = {}
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                if name in places:
                    tensors.setdefault(places[name], []).append(file.get_tensor(name))
    return tensors


def vocabulary_of(
    description: HeadDescription, tensors: Mapping[str, list[Tensor]], where: str
) -> Tensor | None:
    """The target's token of each token that a head knows, int64 `[vocabulary]`; None for all.

    `d2t` holds offsets: token j of the head is token j + d2t[j] of the target.

    Raises:
        UsageError: a map is missing, or is not one; says what it holds.
    """
    count, size = description.output.vocabulary, description.token_ids
    if count >= size:
        return None
    remedy = "Export the head again with the map that it was trained with."
    given = tensors.get("offsets")
    if given is not None:
        tokens = torch.arange(count) + given[0].to(torch.int64)
    elif "token_map" in tensors:
        tokens = tensors["token_map"][0].to(torch.int64)
    else:
        what = f"it knows {count} of {size} tokens, and no d2t says which"
        raise UsageError(what, where=where, remedy=remedy)
    if len(tokens) != count or len(tokens.unique()) != count or not _inside(tokens, size):
        what = f"d2t does not name {count} different tokens of {size}: it holds offsets from j"
        raise UsageError(what, where=where, remedy=remedy)
    members = tensors.get("members")
    if members is not None and not torch.equal(
        members[0].to(torch.bool).nonzero()[:, 0], tokens.sort().values
    ):
        raise UsageError("d2t and t2d name different tokens", where=where, remedy=remedy)
    return tokens


def _inside(tokens: Tensor, size: int) -> bool:
    return bool((tokens >= 0).all()) and bool((tokens < size).all())


def _fill(head: Drafter, tensors: Mapping[str, list[Tensor]], where: str) -> None:
    """Put tensors into the weights.

    Raises:
        UsageError: a weight is missing, of another shape, stored twice with other numbers, or holds
            something that is no number.
    """
    weights = head.weights_by_name()
    filled: set[int] = set()
    for name, copies in tensors.items():
        weight = weights.get(name)
        if name in VOCABULARY:
            continue
        if weight is None:
            what = f"config.json describes no weight {name}, and the files hold one"
            raise UsageError(what, where=where, remedy="Take both from the same checkpoint.")
        for tensor in copies:
            if tensor.shape != weight.shape:
                what = f"{name} is {list(tensor.shape)}, config.json says {list(weight.shape)}"
                raise UsageError(what, where=where, remedy="Take both from the same checkpoint.")
            moved = tensor.to(weight.device, weight.dtype)
            if id(weight) in filled and not torch.equal(weight, moved):
                raise UsageError(f"{name} is tied, and its copies differ", where=where)
            with torch.no_grad():
                weight.copy_(moved)
        filled.add(id(weight))
    missing = [name for name, weight in weights.items() if id(weight) not in filled]
    if missing:
        raise UsageError(
            f"{len(missing)} weights are missing: {', '.join(missing[:5])}",
            where=where,
            remedy="Check that config.json and weights are of the same checkpoint.",
        )
    broken = [name for name, weight in weights.items() if weight.isnan().any()]
    if broken:
        raise UsageError(f"{broken[0]} has values that are not numbers", where=where)
