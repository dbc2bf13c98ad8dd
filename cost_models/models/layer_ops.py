"""The ops of one layer, as each of the devices that share it runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from specplan.cost_models.cost import Cost, Matrix, OpCost, Quantity, maximum
from specplan.cost_models.models.attention_costs import (
    grouped_attention_cost,
    latent_attention_cost,
)
from specplan.cost_models.models.layers import (
    Attention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Mlp,
    StateMixer,
)
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.parameters import attention_biases
from specplan.ir.errors import UsageError


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass; the arguments of `forward_ops`."""

    shape: ModelShape
    batch: Quantity
    tokens: Quantity
    context: Quantity
    dense_block: bool
    tensor_parallel: int
    logit_rows: Quantity = 0

    @property
    def rows(self) -> Quantity:
        """Tokens of all sequences, T."""
        return self.batch * self.tokens

    def linear(self, name: str, part: str, inputs: int, outputs: int, bias: int = 0) -> OpCost:
        """A matrix product: F = 2 T k m, bytes = w k m + a T (k + m).

        Args:
            name: of the op.
            part: of `WeightFormats`, which gives w and the math.
            inputs: k, on this device.
            outputs: m, on this device.
            bias: bias parameters added to the outputs, each once per row.
        """
        form = self.shape.formats.part(part)
        other = self.shape.formats.other.bytes_per_element
        cost = Cost(
            flops=2 * self.rows * inputs * outputs + self.rows * bias,
            weight_bytes=form.bytes_per_element * (inputs * outputs) + other * bias,
            activation_bytes=self.shape.activation_width * self.rows * (inputs + outputs),
            launches=1,
        )
        math = form.math or self.shape.dtype
        return OpCost(name, cost, 1, Matrix(self.rows, inputs, outputs), math)

    def experts(self, name: str, mlp: ExpertMlp, inputs: int, outputs: int) -> OpCost:
        """One product of the routed experts, as one grouped kernel.

        Each token is multiplied by its k experts, F = 2 T k m n; the weights of all experts
        that some token chose are read, U(T) of them.
        """
        form = self.shape.formats.experts
        chosen = distinct_experts(mlp.num_experts, mlp.active_experts, self.rows)
        rows = self.rows * mlp.active_experts
        bias = outputs * mlp.bias
        cost = Cost(
            flops=2 * rows * inputs * outputs + rows * bias,
            weight_bytes=chosen
            * (
                form.bytes_per_element * (inputs * outputs)
                + self.shape.formats.other.bytes_per_element * bias
            ),
            activation_bytes=self.shape.activation_width * rows * (inputs + outputs),
            launches=1,
        )
        matrix = Matrix(rows / chosen, inputs, outputs, chosen)
        return OpCost(name, cost, 1, matrix, form.math or self.shape.dtype)

    def all_reduce(self) -> OpCost:
        """Sum of the residual updates over all devices: 2 (N - 1) / N of the message each way.

        Source: ring all-reduce, Patarasuk and Yuan 2009.
        """
        message = self.rows * self.shape.hidden_size * self.shape.activation_width
        share = 2 * (self.tensor_parallel - 1) / self.tensor_parallel
        return OpCost(
            "all_reduce", Cost(launches=1, link_bytes=share * message), math=self.shape.dtype
        )

    def all_gather(self, width: int) -> OpCost:
        """Gathering of `width` columns that were split over the devices."""
        message = self.rows * width * self.shape.activation_width
        share = (self.tensor_parallel - 1) / self.tensor_parallel
        return OpCost(
            "all_gather", Cost(launches=1, link_bytes=share * message), math=self.shape.dtype
        )

    def split(self, width: int, what: str) -> int:
        """A width divided among the devices.

        Raises:
            UsageError: it cannot be divided evenly.
        """
        if width % self.tensor_parallel:
            raise self.uneven(f"{width} {what}")
        return width // self.tensor_parallel

    def uneven(self, what: str) -> UsageError:
        """The error of something that cannot be divided evenly."""
        return UsageError(
            f"{what} cannot be split evenly over {self.tensor_parallel} devices",
            where=self.shape.name,
            remedy="Choose a number of devices that divides them; `specplan parallel` compares "
            "the splits that work.",
        )


def distinct_experts(experts: int, active: int, tokens: Quantity) -> Quantity:
    """Expected number of experts that T tokens choose, U(T) = E (1 - (1 - k/E)^T).

    Routing is taken as uniform and independent, an upper bound: related tokens share experts.
    """
    return experts * (1 - (1 - active / experts) ** tokens)


def projection_ops(work: Pass, attention: Attention) -> Iterator[OpCost]:
    """The matrix products around attention."""
    hidden, parts = work.shape.hidden_size, work.tensor_parallel
    biases = attention_biases(attention, hidden)
    heads = work.split(attention.num_heads, "heads")
    if isinstance(attention, GroupedAttention):
        own = replace(attention, num_heads=heads, num_kv_heads=_kv_heads(work, attention))
        outputs, inputs = own.projected_width, attention.input_width or hidden
        bias = outputs * attention.input_bias
        yield work.linear("query_key_value", "attention", inputs, outputs, bias)
        values = own.query_width
    else:
        rank, share = attention.query_rank, attention.query_width // parts
        down = (rank or 0) + attention.cached_elements
        if rank is None:
            yield work.linear("query_up", "attention", hidden, share)
        yield work.linear("latent_down", "attention", hidden, down, biases["latent_down"])
        if rank is not None:
            yield work.linear("query_up", "attention", rank, share)
        yield _latent_up(work, attention, heads)
        values = heads * attention.value_dim
    yield work.linear("attention_output", "attention", values, hidden, biases["attention_output"])


def attention_core(work: Pass, attention: Attention) -> OpCost:
    """Scores and weighted sum over the cache."""
    shape = work.shape
    place = (work.batch, work.tokens, work.context, shape.activation_width)
    width = shape.kv_format.bytes_per_element
    heads = work.split(attention.num_heads, "heads")
    if isinstance(attention, GroupedAttention):
        kv_heads = _kv_heads(work, attention)
        grouped = replace(attention, num_heads=heads, num_kv_heads=kv_heads)
        cost = grouped_attention_cost(grouped, *place, width, work.dense_block)
        streams = work.batch * kv_heads
    else:
        share = replace(attention, num_heads=heads)
        _, cost = latent_attention_cost(share, *place, width, work.dense_block)
        streams = work.batch
    return OpCost("attention", cost, 1, None, shape.dtype, streams)


def mixer_ops(work: Pass, mixer: StateMixer) -> Iterator[OpCost]:
    """The products around a recurrent state, and its scan over the tokens of a pass.

    A sequence's state is read once and stored once for each row that gets logits: decoding goes on
    from such rows alone. Of a verification these are the root and all drafted nodes, and going back
    after a rejection is to read another stored state; of a prompt it is the last token (vLLM's
    `fused_recurrent_gated_delta_rule` with `ssm_state_indices` does the same). Where they are
    replayed, only the text's last state is stored. The chunks in which
    prompts are scanned (arXiv 2405.21060, section 6) take about as many operations.
    """
    hidden, shape = work.shape.hidden_size, work.shape
    try:
        own = mixer.share(work.tensor_parallel)
    except ValueError as error:
        raise work.uneven(str(error)) from None
    bias = own.input_width * own.input_bias
    yield work.linear("state_input", "attention", hidden, own.input_width, bias)
    stored = 1 if shape.replays else maximum(work.logit_rows, 1)
    width, traffic = own.value_width * own.state_size, own.channels + 2 * own.value_width
    scan = Cost(
        flops=work.rows * (own.operations * width + 2 * own.taps * own.channels),
        weight_bytes=shape.formats.other.bytes_per_element * own.parameters,
        kv_bytes=shape.state_width * work.batch * (1 + stored) * own.state_elements,
        activation_bytes=shape.activation_width * work.rows * traffic,
        launches=2,
    )
    yield OpCost("state_scan", scan, 1, None, shape.dtype, work.batch * own.heads)
    bias = hidden * own.output_bias
    yield work.linear("state_output", "attention", own.value_width, hidden, bias)


def mlp_ops(work: Pass, mlp: Mlp) -> Iterator[OpCost]:
    """The matrix products of an MLP; of a mixture, its router, shared and routed experts."""
    if isinstance(mlp, DenseMlp):
        if mlp.intermediate_size:
            yield from _dense(work, mlp, "mlp", "mlp")
        return
    hidden, parts = work.shape.hidden_size, work.tensor_parallel
    bias = mlp.num_experts * mlp.router_bias
    yield work.linear("router", "router", hidden, mlp.num_experts + mlp.shared_gate, bias)
    if mlp.shared is not None:
        yield from _dense(work, mlp.shared, "shared", "shared_experts")
    yield work.experts("expert_up", mlp, hidden, -(-mlp.up_width // parts))
    yield work.experts("expert_down", mlp, -(-mlp.intermediate_size // parts), hidden)


def _dense(work: Pass, mlp: DenseMlp, name: str, part: str) -> Iterator[OpCost]:
    hidden, parts = work.shape.hidden_size, work.tensor_parallel
    up, inner = -(-mlp.up_width // parts), -(-mlp.intermediate_size // parts)
    yield work.linear(f"{name}_up", part, hidden, up, up * mlp.bias)
    yield work.linear(f"{name}_down", part, inner, hidden, hidden * mlp.bias)


def _latent_up(work: Pass, attention: LatentAttention, heads: int) -> OpCost:
    """The expansion of latents, or its absorption into queries and outputs."""
    shape, share = work.shape, replace(attention, num_heads=heads)
    cost, _ = latent_attention_cost(
        share,
        work.batch,
        work.tokens,
        work.context,
        shape.activation_width,
        shape.kv_format.bytes_per_element,
        work.dense_block,
    )
    form = shape.formats.attention
    weights = form.bytes_per_element * share.kv_rank * share.expanded_width
    return OpCost("latent_up", cost + Cost(weight_bytes=weights), 1, None, form.math or shape.dtype)


def _kv_heads(work: Pass, attention: GroupedAttention) -> int:
    """KV heads per device: an even share, or one that several devices hold alike."""
    heads, parts = attention.num_kv_heads, work.tensor_parallel
    if heads < parts and parts % heads == 0:
        return 1
    return work.split(heads, "KV heads")
