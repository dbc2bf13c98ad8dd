"""What a decoder is made of: its layers, each with its attention and its MLP.

Sizes are element counts. Two equal layers cost the same; costs are computed once per kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from specplan.ir.blocks import NO_SKIPS, Skips


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Attention whose query heads share key and value heads in groups (one each: multi-head).

    Attributes:
        num_heads: query heads.
        num_kv_heads: key and value heads.
        head_dim: width of one head.
        window: tokens that a query sees at most, itself included; None for all.
        chunk: width of the aligned chunks of text that attention stays within (Llama 4); None
            for no chunks.
        input_bias: biases on the query, key and value projections.
        output_bias: a bias on the output projection.
        norm_parameters: parameters of the norms over queries and keys.
        sinks: a learned sink per head (gpt-oss).
        input_width: width that queries, keys and values are projected from; None for the width of
            the residual stream.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None
    chunk: int | None = None
    input_bias: bool = False
    output_bias: bool = False
    norm_parameters: int = 0
    sinks: bool = False
    input_width: int | None = None

    @property
    def query_width(self) -> int:
        """Width of all queries together, and of the output projection's input."""
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of all keys together; of all values too."""
        return self.num_kv_heads * self.head_dim

    @property
    def cached_elements(self) -> int:
        """Elements that one token takes in this layer's cache."""
        return 2 * self.key_width

    @property
    def projections(self) -> GroupedAttention:
        """The same without its reach: what decides the cost of its matrix products."""
        return replace(self, window=None, chunk=None)

    @property
    def reach(self) -> int | None:
        """Most tokens that a query sees; None for all."""
        return self.window or self.chunk


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1).

    Keys and values are projections of one cached latent vector per token; a rotary key part,
    shared by all heads, is cached beside it.

    Attributes:
        num_heads: heads.
        query_rank: width of the compressed queries; None where queries are not compressed.
        kv_rank: width of the cached latent.
        nope_dim: width per head of queries and keys without positions.
        rope_dim: width of the rotary part of queries and keys.
        value_dim: width per head of values.
        bias: biases on the down projections and on the output projection.
    """

    num_heads: int
    query_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    bias: bool = False

    @property
    def query_width(self) -> int:
        """Width of all queries together."""
        return self.num_heads * (self.nope_dim + self.rope_dim)

    @property
    def value_width(self) -> int:
        """Width of all values together, and of the output projection's input."""
        return self.num_heads * self.value_dim

    @property
    def expanded_width(self) -> int:
        """Width of what the latent expands to: keys without positions, and values."""
        return self.num_heads * (self.nope_dim + self.value_dim)

    @property
    def cached_elements(self) -> int:
        """Elements that one token takes in this layer's cache."""
        return self.kv_rank + self.rope_dim

    @property
    def projections(self) -> LatentAttention:
        """Itself: it has no window."""
        return self

    @property
    def reach(self) -> int | None:
        """A query sees all tokens."""
        return None


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """An MLP that every token passes.

    Attributes:
        intermediate_size: its inner width.
        gated: three matrices (gate, up, down) rather than two.
        bias: biases on all of them.
    """

    intermediate_size: int
    gated: bool = True
    bias: bool = False

    @property
    def up_width(self) -> int:
        """Outputs of the first product: gate and up together."""
        return self.intermediate_size * (2 if self.gated else 1)

    @property
    def active_width(self) -> int:
        """Inner elements that one token activates."""
        return self.up_width


@dataclass(frozen=True, slots=True)
class ExpertMlp:
    """A mixture of experts: a router sends each token to some of them.

    Attributes:
        num_experts: routed experts, E.
        active_experts: experts per token, k.
        intermediate_size: inner width of one routed expert.
        gated: three matrices per expert rather than two.
        bias: biases on all matrices of the routed experts.
        router_bias: a bias on the router.
        shared_intermediate_size: inner width of the shared experts together; 0 for none.
        shared_gate: a learned gate on the shared experts' output (Qwen2-MoE).
    """

    num_experts: int
    active_experts: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_intermediate_size: int = 0
    shared_gate: bool = False

    @property
    def up_width(self) -> int:
        """Outputs of one expert's first product: gate and up together."""
        return self.intermediate_size * (2 if self.gated else 1)

    @property
    def shared(self) -> DenseMlp | None:
        """The shared experts as one MLP; None for none."""
        if not self.shared_intermediate_size:
            return None
        return DenseMlp(self.shared_intermediate_size, self.gated)

    @property
    def active_width(self) -> int:
        """Inner elements that one token activates."""
        shared = self.shared.up_width if self.shared else 0
        return self.active_experts * self.up_width + shared


Attention = GroupedAttention | LatentAttention
Mlp = DenseMlp | ExpertMlp


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One transformer layer.

    Attributes:
        attention: its attention.
        mlp: its MLP.
        norm_parameters: parameters of its norms, those within attention excepted.
    """

    attention: Attention
    mlp: Mlp
    norm_parameters: int


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """Equal parts of some layers, with how many layers have them.

    Attributes:
        projections: attentions without their reach: what the matrix products depend on.
        attentions: attentions with their reach.
        mlps: MLPs.
        blocks: number of attentions and MLPs together.
        mixtures: of them, mixtures of experts.
    """

    projections: tuple[tuple[Attention, int], ...]
    attentions: tuple[tuple[Attention, int], ...]
    mlps: tuple[tuple[Mlp, int], ...]
    blocks: int
    mixtures: int

    @classmethod
    def of(cls, attentions: Sequence[Attention], mlps: Sequence[Mlp]) -> LayerKinds:
        """Count the kinds of some blocks."""
        return cls(
            tuple(Counter(attention.projections for attention in attentions).items()),
            tuple(Counter(attentions).items()),
            tuple(Counter(mlps).items()),
            len(attentions) + len(mlps),
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
        owns_embedding: the embedding is its own rather than another model's.
        owns_head: the LM head is its own rather than another model's.
        drafter_layers: layers of its multi-token-prediction modules, which draft and are no
            part of a forward pass of the model itself.
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
    owns_embedding: bool = True
    owns_head: bool = True
    drafter_layers: tuple[LayerShape, ...] = ()

    @property
    def num_layers(self) -> int:
        """Transformer layers."""
        return len(self.layers)

    def kinds(self, first: int, last: int, skips: Skips = NO_SKIPS) -> LayerKinds:
        """Kinds of the layers of a span, blocks left out; remembered, since every price asks."""
        key, span = (first, last, skips), range(first, last)
        if key not in self._kinds:
            attentions = [self.layers[i].attention for i in span if i not in skips.attentions]
            mlps = [self.layers[i].mlp for i in span if i not in skips.mlps]
            self._kinds[key] = LayerKinds.of(attentions, mlps)
        return self._kinds[key]

    @cached_property
    def _kinds(self) -> dict[tuple[int, int, Skips], LayerKinds]:
        return {}
