"""The matrices of a decoder by the names that checkpoints give their modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate

from specplan.cost_models.models.layers import (
    Attention,
    Decoder,
    DenseMlp,
    GroupedAttention,
    Mlp,
    StateMixer,
)
from specplan.ir.errors import UsageError

_SHARED_PATHS = ("mlp.shared_experts", "mlp.shared_expert", "feed_forward.shared_expert")
_MIXER_PATHS = ("mixer", "mamba", "linear_attn")
_EXPERT_PATHS = (
    "mlp.experts.0",
    "mlp.experts",
    "block_sparse_moe.experts.0",
    "feed_forward.experts",
)


@dataclass(frozen=True, slots=True)
class Module:
    """One matrix, or the same matrix of all experts of a layer.

    Attributes:
        part: of `WeightFormats`.
        names: full names that some family gives it.
        elements: its size.
    """

    part: str
    names: tuple[str, ...]
    elements: int


def matrices(decoder: Decoder) -> Iterator[Module]:
    """All matrices of the layers, and the LM head."""
    hidden = decoder.hidden_size
    for index, layer in enumerate(decoder.layers):
        for part, names, elements in _layer(layer.attention, layer.mixer, layer.mlp, hidden):
            yield Module(part, tuple(f"model.layers.{index}.{name}" for name in names), elements)
    head = decoder.vocab_size * decoder.embedding_size
    yield Module("head", ("lm_head", "model.lm_head"), head)


def any_of(patterns: Sequence[str]) -> Callable[[Module], bool]:
    """Whether one of some patterns names a module.

    A pattern is a regular expression after `re:`, a wildcard, or whole components of a name; it
    names a module and all within it.

    Raises:
        UsageError: a pattern is no regular expression.
    """
    words: list[str] = []
    expressions: list[str] = []
    for pattern in (str(item).replace("language_model.", "") for item in patterns):
        if pattern.startswith("re:"):
            expressions.append(pattern[3:])
        elif "*" in pattern:
            expressions += [translate(pattern), translate(f"{pattern}.*")]
        else:
            words.append(re.escape(pattern))
    if words:
        expressions.append(rf"(?:.*\.)?(?:{'|'.join(words)})(?:\.|$)")
    try:
        compiled = [re.compile(expression) for expression in expressions]
    except re.error as error:
        raise UsageError(
            f"config.json excludes modules by what is no regular expression ({error})"
        ) from error
    return lambda module: any(
        expression.match(name) for name in module.names for expression in compiled
    )


def _layer(
    attention: Attention | None, mixer: StateMixer | None, mlp: Mlp, hidden: int
) -> Iterator[tuple[str, tuple[str, ...], int]]:
    if mixer is not None:
        for name, width in (("in_proj", mixer.input_width), ("out_proj", mixer.value_width)):
            yield "attention", tuple(f"{path}.{name}" for path in _MIXER_PATHS), hidden * width
    for name, elements in _attention(attention, hidden) if attention is not None else ():
        names = [f"self_attn.{name}"]
        if name in ("q_proj", "k_proj", "v_proj"):
            names.append("self_attn.qkv_proj")
        yield "attention", tuple(names), elements
    if isinstance(mlp, DenseMlp):
        yield from _mlp("mlp", ("mlp", "feed_forward"), mlp, hidden, 1)
        return
    if mlp.shared is not None:
        yield from _mlp("shared_experts", _SHARED_PATHS, mlp.shared, hidden, 1)
    routed = DenseMlp(mlp.intermediate_size, mlp.gated)
    yield from _mlp("experts", _EXPERT_PATHS, routed, hidden, mlp.num_experts)


def _attention(attention: Attention, hidden: int) -> Iterator[tuple[str, int]]:
    if isinstance(attention, GroupedAttention):
        inputs = attention.input_width or hidden
        yield "q_proj", inputs * (attention.projected_width - 2 * attention.key_width)
        yield "k_proj", inputs * attention.key_width
        yield "v_proj", inputs * attention.key_width
        yield "o_proj", hidden * attention.query_width
        return
    rank = attention.query_rank
    if rank is None:
        yield "q_proj", hidden * attention.query_width
    else:
        yield "q_a_proj", hidden * rank
        yield "q_b_proj", rank * attention.query_width
    yield "kv_a_proj_with_mqa", hidden * attention.cached_elements
    yield "kv_b_proj", attention.kv_rank * attention.expanded_width
    yield "o_proj", attention.value_width * hidden


def _mlp(
    part: str, paths: tuple[str, ...], mlp: DenseMlp, hidden: int, copies: int
) -> Iterator[tuple[str, tuple[str, ...], int]]:
    size = copies * hidden * mlp.intermediate_size
    ups = ("gate_proj", "up_proj") if mlp.gated else ("up_proj",)
    for name in (*ups, "down_proj"):
        fused = "gate_up_proj" if name != "down_proj" else name
        old = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}[name]
        names = dict.fromkeys(f"{path}.{end}" for path in paths for end in (name, fused, old))
        yield part, tuple(names), size
