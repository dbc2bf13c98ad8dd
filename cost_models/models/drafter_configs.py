"""Drafters that read a target's hidden states as decoders that pricing knows, from config.json.

What a head is made of, whatever family it is of, says its description
(`specplan.cost_models.models.heads`); here is what its passes cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from specplan.cost_models.models.architectures.registry import read_decoder
from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.reading import is_drafter, read_description
from specplan.cost_models.models.heads.shared import attention_sizes
from specplan.cost_models.models.layers import Decoder, DenseMlp, GroupedAttention, LayerShape
from specplan.ir.errors import MissingCapabilityError

__all__ = ["DrafterConfig", "DrafterKind", "is_drafter", "read_drafter_config"]
DrafterKind = Literal[
    "recurrent", "regressive", "exit", "block", "parallel", "steps", "slots", "neighbours"
]


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """What the config.json of a drafter says.

    Attributes:
        kind: `recurrent` drafts a level per pass, from the target's hidden states first and from
            its own after that; `regressive` does so with layers in the first pass alone, `steps`
            without any; `exit` reads a layer's states at drafted tokens too, which the target's
            layers up to there run; `block` drafts a block of tokens in one pass, with a cache;
            `parallel` does so by heads on one state; `slots` are embeddings that the target itself
            reads ahead of the text; `neighbours` are states of a corpus, each with what followed.
        decoder: its structure.
        token_ids: entries of the vocabulary whose ids it takes, the target's.
        feature_layers: after how many layers of the target the hidden states are taken; empty for
            after the last one.
        block: tokens drafted by one pass; 1 for `recurrent` and `regressive`, and for `steps` those
            that it has steps for.
        mask_token: the token that stands where a block is to be drafted.
        description: what it is made of.
    """

    kind: DrafterKind
    decoder: Decoder
    token_ids: int
    feature_layers: tuple[int, ...]
    block: int
    mask_token: int | None
    description: HeadDescription


def read_drafter_config(config: Mapping[str, Any], target: Decoder, where: str) -> DrafterConfig:
    """What a drafter's config.json says of it as a drafter for a target.

    Raises:
        MissingCapabilityError: a form that is not priced; names it.
        UsageError: a key is missing or wrong, or it is a drafter for another target.
    """
    one = read_description(config, target, where)
    kind = _kind(one)
    attends = one.body.layers > 0
    decoder = _attending(one, config, where) if attends else _without_layers(one, target, kind)
    if one.neighbours is not None:  # all states are read to find the nearest, as an LM head is
        decoder = replace(decoder, vocab_size=one.neighbours.states, owns_head=True)
    block = one.levels.reach if kind in ("block", "parallel", "slots") else 1
    block = one.steps if kind == "steps" else block
    mask = one.levels.mask_token
    return DrafterConfig(kind, decoder, one.token_ids, one.reads.layers, block, mask, one)


def _kind(one: HeadDescription) -> DrafterKind:
    if one.neighbours is not None:
        return "neighbours"
    if one.join == "slots":
        return "slots"
    if one.levels.count > 1:
        return "block" if one.levels.by == "slots" else "parallel"
    if one.join == "feature":
        return "exit"
    if one.body.on_text:
        return "regressive"
    return "recurrent" if one.body.layers else "steps"


def _attending(one: HeadDescription, config: Mapping[str, Any], where: str) -> Decoder:
    """The decoder of a head with transformer layers."""
    inner = dict(config.get("transformer_layer_config") or config)
    base = read_decoder({**inner, **one.body.config, "architectures": []}, where)
    if not all(isinstance(layer.attention, GroupedAttention) for layer in base.layers):
        raise MissingCapabilityError("only drafters with grouped attention are priced", where=where)
    norm, wide = base.hidden_size, one.reads.count * one.reads.width
    norms = norm * one.output.norm + norm * one.reads.normed_after
    if one.join == "wide" and one.reads.norm != "none":
        norms += wide
    layers = list(base.layers)
    if one.join == "wide":
        layers[0] = _joining(layers[0], norm)
    if not one.body.input_norm:
        first = layers[0]
        layers[0] = replace(first, norm_parameters=first.norm_parameters - norm)
    if not one.body.mlp:
        layers = [_attention_alone(layer, norm) for layer in layers]
    entry = norm + one.reads.width if one.join in ("concat", "sample") else 0
    if one.join == "sample":  # three matrices of an MLP, and a second state of the layer's
        mlp = layers[0].mlp
        assert isinstance(mlp, DenseMlp), "heads have no experts"
        norms, entry = norms + norm, entry + 4 * mlp.intermediate_size
    if one.join == "ngram":  # a residual block, a matrix, and the other half of a step's head
        entry, norms = (one.tokens_read + 1) * one.tokens_read * norm, one.tokens_read * norm
    if one.by_token is not None:
        base = _by_token(one, base)
        norms = base.final_norm_parameters
    exit_width = one.output.vocabulary if one.join == "ngram" else None
    if one.levels.mixed:
        fed, heads = int(one.body.config["intermediate_size"]), one.levels.count
        entry, exit_width = 2 * norm, (heads + 4) * norm + 3 * fed
        norms = norm * (3 + 2 * heads)  # two norms, positions, and biases of heads and matrix
    return replace(
        base,
        layers=tuple(layers),
        exit_width=exit_width,
        vocab_size=one.output.vocabulary,
        tied_embeddings=False,
        entry_width=entry or None,
        feature_width=base.feature_width or (wide if one.reads.project else 0),
        final_norm_parameters=norms + norm * one.reads.bias,
        owns_embedding=one.embedding == "either" and norm != one.reads.width,
        owns_head=one.output.head != "target",
    )


def _by_token(one: HeadDescription, base: Decoder) -> Decoder:
    """What a token passes before the layers or behind them: a block and a matrix.

    At drafted tokens these are others. Of residual blocks each step has its own, and one counts.
    """
    assert one.by_token is not None
    width, output = one.hidden_size, one.output
    norms = width * (1 + output.norm)  # behind the layers, and before the head
    blocks = 4 * width * (1 + one.by_token.first)  # norm and three biases
    more = width * (2 if output.linear else output.residual)
    return replace(
        base,
        feature_width=3 * width + width,
        step_width=(5 if output.linear else 4) * width,
        final_norm_parameters=norms + blocks + more,
    )


def _attention_alone(layer: LayerShape, hidden: int) -> LayerShape:
    """The same layer without its MLP and the norm before it."""
    assert isinstance(layer.mlp, DenseMlp), "heads have no experts"
    mlp = replace(layer.mlp, intermediate_size=0)
    return replace(layer, mlp=mlp, norm_parameters=layer.norm_parameters - hidden)


def _joining(layer: LayerShape, hidden: int) -> LayerShape:
    """The first layer: embedding and hidden state, each with its norm, side by side."""
    assert isinstance(layer.attention, GroupedAttention), "checked before"
    attention = replace(layer.attention, input_width=2 * hidden)
    return replace(layer, attention=attention, norm_parameters=layer.norm_parameters + hidden)


def _without_layers(one: HeadDescription, target: Decoder, kind: DrafterKind) -> Decoder:
    """The decoder of a head without attention: matrices that a pass reads, and an LM head.

    Heads on one state read all their matrices in the one pass. Of steps each has its own; the mean
    of them counts, in every pass.
    """
    width, output = one.reads.width, one.output
    hidden = one.hidden_size if one.join in ("sum", "recurrent") else width
    blocks = max(output.residual, 0)
    heads = one.levels.count if kind == "parallel" else 1
    inputs = hidden * (1 + output.neighbours)
    more = (heads - 1) * output.vocabulary + heads * blocks * inputs
    if output.inner:  # the target's own matrix follows, which is read once
        more = heads * 2 * output.inner
    slots = one.levels
    if kind == "slots":
        more = slots.count * (hidden if slots.enters and not slots.rank else 1) + 2 * slots.rank
        more += 2 * slots.adapted * slots.adapter_rank
    if one.join == "stack":
        more = (one.steps + 3) * width + (blocks - 1) * width
    if one.join == "sum":
        more = hidden
    if one.join == "recurrent":
        more += width
    if kind == "neighbours":
        more = 0
    at_once = kind in ("parallel", "slots", "neighbours")
    biases = heads * blocks * (hidden * output.residual_bias + output.inner)
    if slots.adapted:  # the other sides of the adapters, and the soft prompt
        joined, mixed = attention_sizes(one.body.config)
        biases = slots.adapted * (slots.adapter_rank * (joined + mixed))
        biases += slots.adapted * slots.prompt * (joined - mixed)  # keys and values
    return Decoder(
        architecture=one.family,
        hidden_size=hidden,
        layers=(),
        vocab_size=output.vocabulary,
        max_positions=target.max_positions,
        tied_embeddings=False,
        embedding_size=hidden,
        final_norm_parameters=biases,
        entry_width=None if at_once else more,
        feature_width=more if at_once else 0,
        owns_embedding=False,
        owns_head=output.head != "target",
    )
