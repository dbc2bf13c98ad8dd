"""Make a store of states: run a target over documents and keep what enters its last layer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from specplan.cost_models.models.heads.neighbours import store_config
from specplan.ir.errors import UsageError
from specplan.ir.files import write_json_atomic
from specplan.runtime.models.causal import CausalModel


def build_neighbours(
    folder: Path,
    target: CausalModel,
    documents: Iterable[NDArray[Any]],
    *,
    window: int = 512,
    **how: Any,
) -> dict[str, int]:
    """Write a store.

    A document longer than the window is read by windows that overlap by half; of all but the first
    the second half is kept, so that every state has seen at least half a window of text.

    Args:
        folder: for config.json and the tensors; config.json comes last.
        target: whose states it holds, in its number type.
        documents: token ids.
        window: tokens that are read together.
        how: of `store_config`: neighbours that count, offset and scale of the confidence.

    Returns:
        `states`, `documents`, and `bytes` of the tensors.

    Raises:
        UsageError: a token is not one of the target's, or nothing is followed by anything.
    """
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    count = number = 0
    for document in documents:
        tokens = torch.from_numpy(document.astype("int64"))
        if len(tokens) < 2:
            continue
        if int(tokens.min()) < 0 or int(tokens.max()) >= target.vocab_size:
            what = f"the corpus has tokens outside the target's vocabulary of {target.vocab_size}"
            raise UsageError(what, where=str(folder), remedy="Encode it by the target's tokenizer.")
        states = states_before_last(
            target, tokens[:-1].to(target.device), min(window, target.max_positions)
        )
        parts.append((states, tokens[1:].to(torch.int32), torch.full((len(states),), number)))
        count, number = count + len(states), number + 1
    if not parts:
        raise UsageError("no document has two tokens", where=str(folder))
    states, following, of = (torch.cat(part) for part in zip(*parts, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"states": states, "next_tokens": following, "documents": of.to(torch.int32)}
    path = folder / "model.safetensors"
    (folder / "config.json").unlink(missing_ok=True)  # without it there is no store
    save_file(tensors, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)
    config = store_config(target, count, digest=target.digest, **how)
    write_json_atomic(folder / "config.json", config)
    return {"states": count, "documents": number, "bytes": path.stat().st_size}


def states_before_last(target: CausalModel, tokens: Tensor, window: int) -> Tensor:
    """What enters the last layer at every token `[n]` of a document, `[n, hidden]` on the host."""
    half, parts = max(window // 2, 1), []
    for start in range(0, max(len(tokens) - half, 1), half):
        read = tokens[start : start + window][None]
        places = torch.arange(read.shape[1], device=read.device)[None]
        mask = torch.ones(1, *places.shape[1:] * 2, dtype=torch.bool, device=read.device).tril()
        cache = target.new_cache(1, read.shape[1])
        states = target.hidden(read, places, places, mask, cache, (0, target.num_layers - 1))
        parts.append(states[0, half if start else 0 :].cpu())
    return torch.cat(parts)
