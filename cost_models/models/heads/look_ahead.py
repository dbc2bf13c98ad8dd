"""Trained embeddings that a target itself reads at slots ahead of the text.

PaSS (Monea et al. 2023, arXiv 2311.13581): look-ahead embeddings, the target's weights as they are.
Parallel prompt decoding (Chen et al. 2024, arXiv 2405.18628) calls them prompt tokens, BiTA (Lin et
al. 2024, arXiv 2401.12522) mask tokens. No format of theirs is read by engines; this is our own:
config.json with `model_type: look_ahead_tokens` and their number, and one tensor, `slots.weight`
`[number, hidden size of the target]`, the embedding of the slot one token ahead first.

Hidden transfer (Wu et al. 2024, arXiv 2404.12022) makes the state of a slot of that of its node, by
a matrix before a layer in the middle of the stack: `transfer_layer` says which, and `slots.weight`
is `[number, hidden size, hidden size]`.

Speculative Streaming (Bhendawade et al. 2024, arXiv 2402.11131): the state of a stream is a map of
low rank of that of its node, the same for all streams, and a vector of its own; in the layers from
there on streams have adapters. `stream_rank` says so beside `transfer_layer`: `slots.weight` is
`[number, hidden size]` again, with `map_down` `[rank, hidden size]` and `map_up` `[hidden size,
rank]`; with `adapter_rank` there are the tensors of `runtime/models/heads/parts/streams.py`, of the
sizes of the target's attention, and no text position knows of them: the paper's lossless mode.

BiTA's masks also see a soft prompt: with `soft_prompt_tokens` n there are `adapters.prompt_keys`
and `adapters.prompt_values` `[layers, n, outputs of the key projection]`.

S3D (Zhong et al. 2024, arXiv 2405.20314): `skipped_layers` are left out of the pass that drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import (
    Body,
    HeadDescription,
    Levels,
    Output,
    Reads,
)
from specplan.cost_models.models.heads.shared import Sizes, layer_config
from specplan.cost_models.models.new_heads import layered_config
from specplan.ir.errors import UsageError

MODEL_TYPE = "look_ahead_tokens"
COUNT = "num_look_ahead_tokens"
LAYER = "transfer_layer"
SKIPPED = "skipped_layers"
STREAMS, ADAPTERS, PROMPT = "stream_rank", "adapter_rank", "soft_prompt_tokens"


def look_ahead_tokens(config: Config, target: Sizes) -> HeadDescription:
    """What enters at slots; the state after the last layer is read by the target's own head.

    Raises:
        UsageError: the target has no such layer, or streams have none.
    """
    width, enters = config.size("hidden_size"), config.count(LAYER)
    skipped = _skipped(config, target.num_layers)
    rank, adapters, prompt = map(config.count, (STREAMS, ADAPTERS, PROMPT))
    if (adapters and not rank) or (rank and not enters):
        raise UsageError(
            f"{STREAMS} is {rank}, {ADAPTERS} {adapters} and {LAYER} {enters}: streams enter "
            "behind the first layer, and adapters are theirs",
            where=config.where,
            remedy=f"Give {LAYER} and {STREAMS} as the streams were trained.",
        )
    if enters >= target.num_layers:
        raise UsageError(
            f"{LAYER} is {enters}, and the target has {target.num_layers} layers",
            where=config.where,
            remedy="Take the look-ahead tokens that were trained for this target.",
        )
    return HeadDescription(
        family=MODEL_TYPE,
        hidden_size=width,
        token_ids=config.size("vocab_size", default=target.vocab_size),
        reads=Reads(width=width),
        join="slots",
        begins=0 if skipped else 1,
        levels=Levels(
            count=config.size(COUNT), by="slots", enters=enters, skipped=skipped, rank=rank,
            adapted=target.num_layers - enters if adapters or prompt else 0, adapter_rank=adapters,
            prompt=prompt,
        ),
        body=Body(config=layer_config(config)) if adapters or prompt else Body(),
        output=Output(finished=True, vocabulary=target.vocab_size),
        names=((r"slots\.weight", "slots"), (r"(map_\w+|adapters\.\w+)", r"\1")),
    )  # fmt: skip


def _skipped(config: Config, layers: int) -> tuple[int, ...]:
    given = config.get(SKIPPED, [])
    known = isinstance(given, list) and all(one in range(layers) for one in given)
    if not known or len(given) == layers or (given and config.count(LAYER)):
        raise UsageError(
            f"{SKIPPED} is {given}: some of the target's layers, 0 to {layers - 1}, in order, and "
            f"none beside {LAYER}",
            where=config.where,
            remedy="Take the look-ahead tokens that were trained for this target.",
        )
    return tuple(sorted(given))


def look_ahead_config(target: Mapping[str, Any], where: str, *, tokens: int = 3) -> dict[str, Any]:
    """config.json of look-ahead tokens that are not trained yet.

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        tokens: ahead; BiTA's code has three.

    Raises:
        UsageError: the target has no such sizes.
    """
    text = Config(target.get("text_config", target), where)
    sizes = {key: text.size(key) for key in ("hidden_size", "vocab_size")}
    return {"model_type": MODEL_TYPE, COUNT: tokens, **sizes}


def bita_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same of BiTA's masks and soft prompt, of 16 tokens as in its code."""
    return {**layered_config(target, where), **look_ahead_config(target, where), PROMPT: 16}


def hidden_transfer_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same of maps before the middle of the stack; arguments and errors alike."""
    layers = Config(target.get("text_config", target), where).size("num_hidden_layers")
    return {**look_ahead_config(target, where), LAYER: max(layers // 2, 1)}


def streams_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same of streams in the last quarter of the layers; their number and ranks are ours."""
    layers = Config(target.get("text_config", target), where).size("num_hidden_layers")
    return {
        **layered_config(target, where),
        **look_ahead_config(target, where),
        LAYER: max(layers - max(layers // 4, 1), 1),
        STREAMS: 32,
        ADAPTERS: 8,
    }


def skipping_config(target: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The same of look-ahead tokens for the first and last quarter of the layers."""
    layers = Config(target.get("text_config", target), where).size("num_hidden_layers")
    quarter = max(layers // 4, 1)
    return {
        **look_ahead_config(target, where, tokens=4),
        SKIPPED: list(range(quarter, max(layers - quarter, quarter))),
    }
