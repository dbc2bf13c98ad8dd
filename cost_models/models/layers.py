"""What a decoder is made of: its layers, with attention, recurrent states and MLPs.

Sizes are element counts. Two equal layers cost the same; costs are computed once per kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from specplan.cost_models.models.blocks import (
    Attention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Mlp,
    StateMixer,
)
from specplan.ir.blocks import NO_SKIPS, Skips

__all__ = [
    "Attention",
    "Decoder",
    "DenseMlp",
    "ExpertMlp",
    "GroupedAttention",
    "LatentAttention",
    "LayerKinds",
    "LayerShape",
    "Mlp",
    "StateMixer",
]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One transformer layer.

    Attributes:
        attention: its attention; None where it only has a state.
        mlp: its MLP.
        norm_parameters: parameters of its norms, those within attention and mixer excepted.
        mixer: mixes tokens by a state, beside attention or in its place; None for none.
    """

    attention: Attention | None
    mlp: Mlp
    norm_parameters: int
    mixer: StateMixer | None = None


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """Equal parts of some layers, with how many layers have them.

    Attributes:
        projections: attentions without their reach: what the matrix products depend on.
        attentions: attentions with their reach.
        mixers: of recurrent states.
        mlps: MLPs.
        blocks: number of attentions, mixers and MLPs together.
        mixtures: of them, mixtures of experts.
    """

    projections: tuple[tuple[Attention, int], ...]
    attentions: tuple[tuple[Attention, int], ...]
    mixers: tuple[tuple[StateMixer, int], ...]
    mlps: tuple[tuple[Mlp, int], ...]
    blocks: int
    mixtures: int

    @classmethod
    def of(
        cls, attentions: Sequence[Attention], mixers: Sequence[StateMixer], mlps: Sequence[Mlp]
    ) -> LayerKinds:
        """Count the kinds of some blocks."""
        return cls(
            tuple(Counter(attention.projections for attention in attentions).items()),
            tuple(Counter(attentions).items()),
            tuple(Counter(mixers).items()),
            tuple(Counter(mlps).items()),
            len(attentions) + len(mixers) + len(mlps),
            sum(isinstance(mlp, ExpertMlp) for mlp in mlps),
        )


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """The structure of a decoder-only transformer, whatever numbers it is stored in.

    Attributes:
        architecture: the `model_type` of its config.json.
        hidden_size: width of the residual stream.
        layers: its layers, first to last.
        vocab_size: rows of the LM head.
        max_positions: longest text.
        tied_embeddings: the LM head is the embedding table.
        embedding_size: width of the embedding table and of the LM head's input.
        learned_positions: rows of a learned position table, 0 with rotary positions.
        final_norm_parameters: parameters of the norms outside the layers.
        entry_width: width of what a matrix projects to `hidden_size` before the first layer;
            None for no such matrix.
        exit_width: width that a matrix projects to after the last layer; None for no such matrix.
        feature_width: width of another model's hidden states, which a matrix projects to
            `hidden_size` where they enter; its own enter as they are. None for no such matrix.
        step_width: width of what matrices project to `hidden_size` in a pass that goes on behind
            the layers, from its own hidden states; None where such a pass runs them again.
        owns_embedding: the embedding is its own rather than another model's.
        owns_head: the LM head is its own rather than another model's.
        drafter_layers: layers of its multi-token-prediction modules, which draft and are no
            part of a forward pass of the model itself.
        replays: a pass stores one recurrent state per sequence, that of the text's last token.
    """

    architecture: str
    hidden_size: int
    layers: tuple[LayerShape, ...]
    vocab_size: int
    max_positions: int
    tied_embeddings: bool
    embedding_size: int
    learned_positions: int = 0
    final_norm_parameters: int = 0
    entry_width: int | None = None
    exit_width: int | None = None
    feature_width: int | None = None
    step_width: int | None = None
    owns_embedding: bool = True
    owns_head: bool = True
    drafter_layers: tuple[LayerShape, ...] = ()
    replays: bool = False

    @property
    def num_layers(self) -> int:
        """Transformer layers."""
        return len(self.layers)

    @cached_property
    def state_elements(self) -> int:
        """Elements of the recurrent states of one sequence; 0 where only attention mixes tokens."""
        mixers = (layer.mixer for layer in self.layers)
        return sum(mixer.state_elements for mixer in mixers if mixer is not None)

    @cached_property
    def kv_heads(self) -> tuple[int, ...]:
        """Per layer, heads that have keys and values of their own; 0 where heads share a latent."""
        mixing = (layer.attention for layer in self.layers)
        return tuple(one.num_kv_heads if isinstance(one, GroupedAttention) else 0 for one in mixing)

    def kinds(self, first: int, last: int, skips: Skips = NO_SKIPS) -> LayerKinds:
        """Kinds of the layers of a span, blocks left out; remembered, since every price asks.

        A mixer counts as the attention of its layer: whoever skips the one skips the other.
        """
        key, span = (first, last, skips), range(first, last)
        if key not in self._kinds:
            mixing = [self.layers[i] for i in span if i not in skips.attentions]
            self._kinds[key] = LayerKinds.of(
                [layer.attention for layer in mixing if layer.attention is not None],
                [layer.mixer for layer in mixing if layer.mixer is not None],
                [self.layers[i].mlp for i in span if i not in skips.mlps],
            )
        return self._kinds[key]

    @cached_property
    def _kinds(self) -> dict[tuple[int, int, Skips], LayerKinds]:
        return {}
