"""Heads as their papers write them, on a path of drafted tokens: slow, plain, one text at a time.

A text x_0 ... x_n, x_n being the last emitted token, and states g_0 ... g_(n-1) of the target. Each
function gives logits `[steps, vocabulary]` that predict what follows x_n, then what follows each
token of `drafted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]


def rms(states: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon), weighted."""
    normed = states / (states.pow(2).mean(-1, keepdim=True) + epsilon).sqrt()
    return normed if weight is None else normed * weight


def rotated(heads: Tensor, positions: Sequence[int], theta: float = 10000.0) -> Tensor:
    """RoFormer's rotation (arXiv 2104.09864) of `[n, H, D]`, halves apart, in float32 angles."""
    half = heads.shape[-1] // 2
    rates = 1.0 / theta ** (torch.arange(0, 2 * half, 2).float() / (2 * half))
    angles = torch.tensor(positions).float()[:, None] * rates
    cos, sin = (x.to(heads.dtype)[:, None] for x in (angles.cos(), angles.sin()))
    first, second = heads[..., :half], heads[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attention(
    w: Weights, queries: Tensor, keys: Tensor, at: Sequence[int], of: Sequence[int], seen: Tensor
) -> Tensor:
    """Grouped attention of inputs `[n, F]` to inputs `[m, F]`; `seen` is bool `[n, m]`."""
    q, k, v = (
        functional.linear(x, w[f"self_attn.{name}_proj.weight"]).unflatten(1, (-1, 8))
        for x, name in ((queries, "q"), (keys, "k"), (keys, "v"))
    )
    if "self_attn.q_norm.weight" in w:
        q, k = (rms(x, w[f"self_attn.{n}_norm.weight"], 1e-5) for x, n in ((q, "q"), (k, "k")))
    q, k = rotated(q, at), rotated(k, of)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) / 8**0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    mixed = torch.einsum("hnm,mhd->nhd", weights, v).flatten(1)
    return functional.linear(mixed, w["self_attn.o_proj.weight"])


def mlp(w: Weights, states: Tensor, epsilon: float = 1e-5) -> Tensor:
    """x + down(SiLU(gate(x)) up(x)) of the normed state."""
    given = rms(states, w["post_attention_layernorm.weight"], epsilon)
    gate, up = (functional.linear(given, w[f"mlp.{n}_proj.weight"]) for n in ("gate", "up"))
    return states + functional.linear(functional.silu(gate) * up, w["mlp.down_proj.weight"])


def part(tensors: Weights, prefix: str) -> Weights:
    """Tensors behind a prefix."""
    return {n.removeprefix(prefix): x for n, x in tensors.items() if n.startswith(prefix)}


def whole(logits: Tensor, tensors: Weights, size: int) -> Tensor:
    """Logits over all tokens: minus infinity but at j + d2t[j]."""
    if "d2t" not in tensors:
        return logits
    out = torch.full((*logits.shape[:-1], size), -torch.inf, dtype=logits.dtype)
    out[..., torch.arange(logits.shape[-1]) + tensors["d2t"]] = logits
    return out


def causal(count: int) -> Tensor:
    """Bool `[count, count]`, itself and before."""
    return torch.ones(count, count, dtype=torch.bool).tril()


def eagle3(
    config: dict[str, Any], tensors: Weights, embedding: Tensor, text: Sequence[int],
    states: Tensor, drafted: Sequence[int],
) -> Tensor:  # fmt: skip
    """EAGLE-3, arXiv 2503.01840 section 3; flags as in `speculators`."""
    first = "midlayer." if "midlayer.mlp.up_proj.weight" in tensors else "layers.0."
    w, table = part(tensors, first), tensors.get("embed_tokens.weight", embedding)
    if config.get("norm_before_fc"):
        states = rms(states, tensors["input_norm.weight"], 1e-5)
    if config.get("fc_norm"):
        parts = enumerate(states.split(32, 1))
        states = torch.cat([rms(x, tensors[f"fc_norm.{n}.weight"], 1e-5) for n, x in parts], 1)
    g = functional.linear(states, tensors["fc.weight"])  # row t: token t + 1 and state t
    tokens, logits = list(text[1:]), []
    for step in range(len(drafted) + 1):
        e = table[torch.tensor(tokens)]
        normed = rms(g, w["hidden_norm.weight"], 1e-5)
        inputs = torch.cat([rms(e, w["input_layernorm.weight"], 1e-5), normed], 1)
        place = range(len(tokens))
        seen = causal(len(tokens))
        a = (normed if config.get("norm_before_residual") else g) + attention(
            w, inputs, inputs, place, place, seen
        )
        a = mlp(w, a)
        for number in range(1, config["num_hidden_layers"]):
            more = part(tensors, f"layers.{number}.")
            given = rms(a, more["input_layernorm.weight"], 1e-5)
            a = mlp(more, a + attention(more, given, given, place, place, seen))
        last = rms(a[-1], tensors["norm.weight"], 1e-5)
        logits.append(
            whole(functional.linear(last, tensors["lm_head.weight"]), tensors, len(table))
        )
        if step < len(drafted):
            onward = last if config.get("norm_output") else a[-1]
            tokens, g = [*tokens, drafted[step]], torch.cat([g, onward[None]])
    return torch.stack(logits)


def peagle(
    config: dict[str, Any], tensors: Weights, embedding: Tensor, text: Sequence[int],
    states: Tensor, steps: int,
) -> Tensor:  # fmt: skip
    """P-EAGLE (`speculators` peagle): EAGLE-3 on mask tokens with a trained state, all at once."""
    masks = [config["mask_token_id"]] * (steps - 1)
    trained = tensors["mask_hidden"][0].expand(steps - 1, -1)
    rows, logits = torch.cat([states, trained]), []
    for step in range(steps):
        stop = len(states) + step
        one = eagle3(config, tensors, embedding, [*text, *masks[:step]], rows[:stop], [])
        logits.append(one[0])
    return torch.stack(logits)


def concat(
    tensors: Weights, table: Tensor, head: Tensor, text: Sequence[int], states: Tensor,
    drafted: Sequence[int], *, names: Sequence[str], epsilon: float, onward_normed: bool = False,
    first_embedding: bool = True, layer_epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    """EAGLE-1 (arXiv 2401.15077) and modules (arXiv 2412.19437): one layer behind a matrix.

    KOALA (arXiv 2408.08146) has several. `names`: of the matrix, the layer or layers with spaces
    between, the norms of token and state, and the last norm, or "".
    """
    join, layers, token, state, last = names
    stack = [part(tensors, layer) for layer in layers.split()]
    tokens, logits, g = list(text[1:]), [], states
    for step in range(len(drafted) + 1):
        e = table[torch.tensor(tokens)].clone()
        if not first_embedding:
            e[0] = 0.0
        if token:
            e, h = rms(e, tensors[token], epsilon), rms(g, tensors[state], epsilon)
        else:
            h = g
        bias = tensors.get(join.replace("weight", "bias"))
        x = functional.linear(torch.cat([e, h], 1), tensors[join], bias)
        place = range(len(tokens))
        for w in stack:
            given = (
                rms(x, w["input_layernorm.weight"], layer_epsilon)
                if "input_layernorm.weight" in w
                else x
            )
            mixed = attention(w, given, given, place, place, causal(len(tokens)))
            x = mlp(w, x + mixed, layer_epsilon)
        out = rms(x[-1], tensors[last], epsilon) if last else x[-1]
        logits.append(functional.linear(out, head))
        if step < len(drafted):
            tokens, g = (
                [*tokens, drafted[step]],
                torch.cat([g, (out if onward_normed else x[-1])[None]]),
            )
    return torch.stack(logits)


def medusa(tensors: Weights, form: str, heads: int, blocks: int, state: Tensor) -> Tensor:
    """Medusa, arXiv 2401.10774 section 2.1: W2 (SiLU(W1 h) + h)."""
    logits = []
    for head in range(heads):
        x = state
        for block in range(blocks):
            name = (
                f"{head}.{block}.linear" if form == "original" else f"blocks.{head}.layers.{block}"
            )
            x = x + functional.silu(
                functional.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))
            )
        last = f"{head}.{blocks}.weight" if form == "original" else f"lm_heads.{head}.weight"
        logits.append(functional.linear(x, tensors[last]))
    return torch.stack(logits)


def blockwise(tensors: Weights, head: Tensor, heads: int, state: Tensor) -> Tensor:
    """Blockwise parallel decoding, arXiv 1811.03115: a hidden layer and a residual."""
    logits = []
    for number in range(heads):
        w = part(tensors, f"{number}.")
        x = functional.relu(functional.linear(state, w["0.weight"], w["0.bias"]))
        x = state + functional.linear(x, w["2.weight"], w["2.bias"])
        logits.append(functional.linear(x, head))
    return torch.stack(logits)


def cerberus(tensors: Weights, heads: int, blocks: int, state: Tensor) -> Tensor:
    """Cerberus, arXiv 2410.13344 section 3: in every layer of blocks, x_i reads x_(i-1)."""
    states = [state] * heads
    for block in range(blocks):
        before = [state, *states[:-1]]
        for head in range(heads):
            name, x = f"{head}.{block}.linear", torch.cat([states[head], before[head]])
            moved = functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])
            states[head] = states[head] + functional.silu(moved)
    return torch.stack(
        [functional.linear(x, tensors[f"{n}.{blocks}.weight"]) for n, x in enumerate(states)]
    )


def parallel_layers(
    tensors: Weights, norm: Callable[[Tensor], Tensor], head: Tensor, states: Tensor, heads: int
) -> Tensor:
    """Multi-token prediction, arXiv 2404.19737 section 2: a layer on the trunk for each token."""
    place, logits = range(len(states)), []
    for number in range(heads):
        w = part(tensors, f"extra_heads.{number}.")
        given = rms(states, w["input_layernorm.weight"], 1e-5)
        x = mlp(w, states + attention(w, given, given, place, place, causal(len(states))))
        logits.append(functional.linear(norm(x[-1]), head))
    return torch.stack(logits)


def hydra(
    tensors: Weights, table: Tensor, blocks: int, state: Tensor, tokens: Sequence[int]
) -> Tensor:
    """Hydra, arXiv 2402.05109 section 3: head k reads the state and k + 1 tokens."""
    logits = []
    for head in range(len(tokens)):
        x = torch.cat([state, *table[torch.tensor(tokens[: head + 1])]])
        for block in range(blocks):
            name = f"hydra_mlp.{head}.{block}.linear"
            moved = functional.silu(
                functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])
            )
            if block == 0:
                short = f"hydra_mlp.{head}.0.res_connection"
                x = functional.linear(x, tensors[f"{short}.weight"], tensors[f"{short}.bias"])
            x = x + moved
        name = f"hydra_lm_head.{head}"
        logits.append(functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"]))
    return torch.stack(logits)


def mlp_speculator(tensors: Weights, state: Tensor, tokens: Sequence[int], scaled: bool) -> Tensor:
    """MLP speculators, arXiv 2404.19124 section 2; fms-extras `MLPSpeculator`."""
    t, steps, logits = part(tensors, "speculator."), len(tokens), []
    inner = t["proj.0.weight"].shape[0]
    weight = 0.5 ** (0.5 / steps)
    alpha = ((1 - weight**2) * inner / 2) ** 0.5 / weight
    if scaled:
        state = rms(state, None, 1e-6) / 2**0.5
    for k, token in enumerate(tokens):
        x = functional.linear(state, t[f"proj.{k}.weight"]) + alpha * t[f"emb.{k}.weight"][token]
        state = functional.gelu(rms(x, t[f"ln.{k}.weight"], 1e-6) + t[f"ln.{k}.bias"])
        logits.append(functional.linear(state, t[f"head.{k}.weight"]))
    return torch.stack(logits)


def redrafter(
    tensors: Weights, table: Tensor, blocks: int, state: Tensor, tokens: Sequence[int]
) -> Tensor:
    """ReDrafter, arXiv 2403.09919 section 3: s = SiLU(W e + U s + b), logits of [h; s]."""
    s, logits = torch.zeros_like(state), []
    for token in tokens:
        w, u = functional.linear(table[token], tensors["rnn_w.weight"]), tensors["rnn_u.weight"]
        s = functional.silu(w + functional.linear(s, u, tensors["rnn_u.bias"]))
        x = torch.cat([state, s])
        for block in range(blocks):
            name = f"lm_head.{block}.linear"
            x = x + functional.silu(
                functional.linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])
            )
        logits.append(functional.linear(x, tensors[f"lm_head.{blocks}.weight"]))
    return torch.stack(logits)


def dflash(
    config: dict[str, Any], tensors: Weights, table: Tensor, head: Tensor, text: Sequence[int],
    states: Tensor,
) -> Tensor:  # fmt: skip
    """DFlash, arXiv 2602.06036: keys and values of text by its states, a block that sees itself."""
    size, n = config["block_size"], len(text) - 1
    joined = functional.linear(states, tensors["fc.weight"])
    context = rms(joined, tensors["hidden_norm.weight"], 1e-5)
    masks = [config["dflash_config"]["mask_token_id"]] * (size - 1)
    x = table[torch.tensor([text[-1], *masks])]
    at, of = range(n, n + size), [*range(n), *range(n, n + size)]
    seen = torch.ones(size, n + size, dtype=torch.bool)
    for number in range(config["num_hidden_layers"]):
        w = part(tensors, f"layers.{number}.")
        given = rms(x, w["input_layernorm.weight"], 1e-5)
        x = mlp(w, x + attention(w, given, torch.cat([context, given]), at, of, seen))
    return functional.linear(rms(x[1:], tensors["norm.weight"], 1e-5), head)


def kangaroo(tensors: Weights, norm: Tensor | None, head: Tensor, states: Tensor) -> Tensor:
    """Kangaroo, arXiv 2404.18911 section 3.2: attention on early states, then the target's head."""
    w, place = part(tensors, "layers.0."), range(len(states))
    given = rms(states, w["input_layernorm.weight"], 1e-5)
    x = states + attention(w, given, given, place, place, causal(len(states)))
    return functional.linear(rms(x[-1], tensors["norm.weight"], 1e-5), head)
