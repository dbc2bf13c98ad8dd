"""What a layer is made of: attentions, states and MLPs, by the element counts of their costs."""

from __future__ import annotations

from dataclasses import dataclass, replace


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
        output_gate: beside the queries a gate of their width, by which outputs are multiplied.
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
    output_gate: bool = False

    @property
    def query_width(self) -> int:
        """Width of all queries together, and of the output projection's input."""
        return self.num_heads * self.head_dim

    @property
    def projected_width(self) -> int:
        """Outputs of the first product: queries, their gate, keys and values."""
        return self.query_width * (2 if self.output_gate else 1) + 2 * self.key_width

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
class StateMixer:
    """What mixes tokens by a recurrent state: Mamba-2 or a gated delta net.

    arXiv 2405.21060 and 2412.06464.

    The state of a head is a matrix; a token scales it, adds an outer product, and reads it by a
    vector. What enters passes a causal convolution before, whose last inputs are state as well.

    Attributes:
        heads: of the state.
        head_dim: width of a head's values: rows of its state.
        state_size: width of what is written with (B, keys) and read by (C, queries): columns.
        groups: heads of B and C, or of keys and queries; several heads of the state share one.
        taps: of the convolution.
        rates: numbers per head and token that say how fast it forgets and learns.
        operations: per element of the state and token. Mamba-2: decay 1, update 2, output 2. Delta
            net: 2 more for what the state recalls under the key.
        own_parameters: per head: decay, bias of the step size, skip.
        norm_parameters: of the norm of its output.
        input_bias: a bias on the input projection.
        output_bias: a bias on the output projection.
        convolution_bias: a bias on the convolution.
    """

    heads: int
    head_dim: int
    state_size: int
    groups: int
    taps: int
    rates: int
    operations: int
    own_parameters: int
    norm_parameters: int = 0
    input_bias: bool = False
    output_bias: bool = False
    convolution_bias: bool = False

    @property
    def value_width(self) -> int:
        """Width of all values together, of the gate, and of the output projection's input."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """Inputs of the convolution: values, and what is written with and read by."""
        return self.value_width + 2 * self.groups * self.state_size

    @property
    def input_width(self) -> int:
        """Outputs of the input projections: the convolution's inputs, a gate, and the rates."""
        return self.channels + self.value_width + self.rates * self.heads

    @property
    def state_elements(self) -> int:
        """Elements of the state of one sequence, the convolution's last inputs among them."""
        return self.value_width * self.state_size + self.channels * (self.taps - 1)

    @property
    def parameters(self) -> int:
        """Parameters outside of projections, biases and norms: convolution, decays and skips."""
        return self.channels * self.taps + self.own_parameters * self.heads

    def share(self, devices: int) -> StateMixer:
        """What one of some devices has of it: a share of the heads, at least a whole group.

        Raises:
            ValueError: the heads cannot be shared evenly.
        """
        if self.heads % devices or (self.groups % devices and devices % self.groups):
            raise ValueError(f"{self.heads} heads of a state in {self.groups} groups")
        return replace(self, heads=self.heads // devices, groups=max(1, self.groups // devices))


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """An MLP that every token passes.

    Attributes:
        intermediate_size: its inner width; 0 for no MLP.
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
