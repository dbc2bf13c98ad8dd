"""What attention over the cache uses: scores and weighted sums, and the latent's expansion.

Grouped attention: F = 4 B H hd P, P the query-key pairs; keys and values are read once per KV
head. Latent attention follows DeepSeek-V2 (arXiv 2405.04434, section 2.1) in its two forms.
"""

from __future__ import annotations

from specplan.cost_models.cost import Cost, Quantity, maximum, minimum, where_less
from specplan.cost_models.models.layers import GroupedAttention, LatentAttention


def grouped_attention_cost(
    attention: GroupedAttention,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    activation_width: float,
    cache_width: float,
    dense_block: bool = False,
) -> Cost:
    """Scores and weighted sum of one layer.

    Args:
        attention: its heads and reach.
        batch: sequences, B.
        tokens: query tokens per sequence, n.
        context: tokens in the cache before them, s.
        activation_width: bytes of an activation.
        cache_width: bytes of a cached element.
        dense_block: all pairs among the query tokens are computed, not the causal half.

    Returns:
        Bytes: keys and values of the slots in reach, and queries and outputs.
    """
    pairs, reach = query_key_pairs(tokens, context, attention.window, attention.chunk, dense_block)
    return Cost(
        flops=4 * batch * attention.query_width * pairs,
        kv_bytes=cache_width * 2 * batch * attention.key_width * (reach + tokens),
        activation_bytes=activation_width * 2 * batch * tokens * attention.query_width,
        launches=1,
    )


def query_key_pairs(
    tokens: Quantity,
    context: Quantity,
    window: int | None,
    chunk: int | None,
    dense_block: bool,
) -> tuple[Quantity, Quantity]:
    """Pairs that the queries of one sequence see, and the cached tokens in their reach.

    A causal block of n queries after s cached tokens sees P = sum over i = 1..n of s + i pairs;
    with a window w of min(s + i, w); with chunks of C of those in the query's own chunk,
    ((s + i - 1) mod C) + 1.
    """
    if chunk is not None:
        reach = context - context // chunk * chunk
        pairs = _chunked_before(context + tokens, chunk) - _chunked_before(context, chunk)
        return (tokens * (reach + tokens) if dense_block else pairs), reach
    reach = context if window is None else minimum(context, window - 1)
    if dense_block:
        return tokens * (reach + tokens), reach
    if window is None:
        return _half(tokens * (2 * context + tokens + 1)), reach
    # queries 1..short see their whole past, the others `window` tokens
    short = minimum(maximum(window - context, 0), tokens)
    return short * context + _half(short * (short + 1)) + (tokens - short) * window, reach


def latent_attention_cost(
    attention: LatentAttention,
    batch: Quantity,
    tokens: Quantity,
    context: Quantity,
    activation_width: float,
    cache_width: float,
    dense_block: bool = False,
) -> tuple[Cost, Cost]:
    """The latent's expansion and the attention of one layer, in the form with fewer operations.

    *Absorbed*: the expansion is multiplied into the queries and the outputs, and all heads
    attend to the latents themselves. *Expanded*: the keys and values of all cached tokens are
    computed first. Decoding and verification take fewer operations absorbed, prefill expanded;
    vLLM (vllm/v1/attention/backends/mla/common.py, "compute friendly" and "data-movement
    friendly") and DeepSeek-V2's section 2.1.2 choose the same.

    Args:
        attention: its heads and widths.
        batch: sequences, B.
        tokens: query tokens per sequence, n.
        context: tokens in the cache before them, s.
        activation_width: bytes of an activation.
        cache_width: bytes of a cached element.
        dense_block: all pairs among the query tokens are computed, not the causal half.

    Returns:
        Cost of the expansion, without the bytes of its weights, and cost of the attention.
    """
    pairs, _ = query_key_pairs(tokens, context, None, None, dense_block)
    rank, heads = attention.kv_rank, attention.num_heads
    new, cached = batch * tokens, batch * (context + tokens)
    expansion = 2 * rank * attention.expanded_width
    absorbed, expanded = _latent_flops(attention, 2 * batch * heads * pairs)
    fewer = absorbed + new * expansion, expanded + cached * expansion

    def of(in_absorbed: Quantity, in_expanded: Quantity) -> Quantity:
        return where_less(*fewer, in_absorbed, in_expanded)

    outputs = attention.expanded_width
    latents = new * (2 * heads * rank + outputs)  # absorbed: queries in and outputs back
    read = cached * (outputs + heads * attention.rope_dim)  # expanded: keys and values of all heads
    per_head = of(
        2 * rank + attention.rope_dim, attention.query_width // heads + attention.value_dim
    )
    return (
        Cost(
            flops=of(new, cached) * expansion,
            activation_bytes=activation_width * of(latents, cached * (rank + outputs)),
            launches=of(2, 1),
        ),
        Cost(
            flops=of(absorbed, expanded),
            kv_bytes=cache_width * cached * attention.cached_elements,
            activation_bytes=activation_width * (new * heads * per_head + of(0, read)),
            launches=1,
        ),
    )


def _latent_flops(attention: LatentAttention, terms: Quantity) -> tuple[Quantity, Quantity]:
    """Operations of scores and weighted sums: over the latents, and over expanded keys and values.

    F = 2 B H P (2 r + rope) absorbed, F = 2 B H P (nope + rope + v) expanded.

    Args:
        attention: its widths.
        terms: 2 B H P, the operations per element of width.
    """
    latent = 2 * attention.kv_rank + attention.rope_dim
    head = attention.nope_dim + attention.rope_dim + attention.value_dim
    return terms * latent, terms * head


def _chunked_before(position: Quantity, chunk: int) -> Quantity:
    """Pairs of all queries before a position: whole chunks, and the begun one.

    No `%`: sympy 1.14 prints `-Mod(s, c) * ...` to Python without the parentheses it needs.
    """
    whole = position // chunk
    begun = position - whole * chunk
    return whole * _half(chunk * (chunk + 1)) + _half(begun * (begun + 1))


def _half(even: Quantity) -> Quantity:
    """Half of an even quantity; exact in integers."""
    return even // 2 if isinstance(even, int) else even / 2
