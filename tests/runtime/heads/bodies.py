"""Heads whose bodies have forms of their own: random checkpoints, and what their papers compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.runtime.heads.formats import INNER, LAYERS, VOCABULARY, WIDTH, Random, Stored
from tests.runtime.heads.papers import Weights, attention, causal, mlp, part, rms


def clover(version: int = 2, steps: int = 3, size: int = VOCABULARY, **changes: Any) -> Stored:
    """Clover-2 in its authors' names, or Clover in ours."""
    make = Random(15)
    sizes = {"num_heads": steps, "num_layers": version}
    sizes |= {"version": 1} if version == 1 else {}
    tensors = {"clover_norm.weight": make.norm(WIDTH)}
    for number in range(version):
        tensors |= make.layer(f"layers.{number}.")
        tensors[f"layers.{number}.input_layernorm.weight"] = make.norm(WIDTH)
    for block in ("clover_head_mlp_rnn", "clover_head_mlp_rnn2")[:version]:
        tensors[f"{block}.input_layernorm.weight"] = make.norm(WIDTH)
        for name in "qkv":
            tensors[f"{block}.{name}.weight"] = make(WIDTH, WIDTH)
            tensors[f"{block}.{name}.bias"] = make(WIDTH)
    linear = {"": (WIDTH, WIDTH), "2": (WIDTH, 2 * WIDTH)}
    if version == 1:
        linear = {f".{step}.0.linear": (WIDTH, WIDTH) for step in range(steps)}
    else:
        tensors["clover_head_norm.weight"] = make.norm(WIDTH)
        tensors["clover_embed_tokens.weight"] = make(size, WIDTH, scale=4.0)
        tensors["lm_head.weight"] = make(size, WIDTH)  # the target's, which is used
    for name, shape in linear.items():
        tensors[f"clover_head_mlp{name}.weight"] = make(*shape)
        tensors[f"clover_head_mlp{name}.bias"] = make(WIDTH)
    config = {**LAYERS, "architectures": ["LlamaForCausalLM"], "vocab_size": size, "clover": sizes}
    return Stored(config | changes, tensors)


def chimera(steps: int = 3, size: int = VOCABULARY) -> Stored:
    """Chimera in its authors' names."""
    make, wide = Random(19), 3 * WIDTH
    tensors = make.layer("fast_layer1.0.")
    tensors |= {
        "fast_layer1.0.input_layernorm.weight": make.norm(WIDTH),
        "trimlp.0.linear.weight": make(wide, wide), "trimlp.0.linear.bias": make(wide),
        "trimlp.1.weight": make(WIDTH, wide, scale=3.0),
    }  # fmt: skip
    for step in range(steps):
        tensors[f"chimera_head.{step}.0.weight"] = make(size, 2 * WIDTH, scale=6.0)
    return Stored({**LAYERS, "vocab_size": size, "chimera_num_heads": steps}, tensors)


def by_chimera(
    t: Weights, table: Tensor, states: Tensor, text: Sequence[int], drafted: Sequence[int]
) -> Tensor:
    """Chimera, arXiv 2402.15758 section 3, as its authors' code decodes (`headgenerate`).

    The layer runs along all states so far and the trigram of the last token; what it gives there is
    the next state. Arguments as of `by_clover`, states behind the target's final norm.
    """
    w, h, logits = part(t, "fast_layer1.0."), states, []
    for step in range(len(drafted) + 1):
        path = [*text, *drafted[:step]]
        e = table[torch.tensor([path[0], path[0], *path][-3:])].flatten()
        e = e + functional.silu(
            functional.linear(e, t["trimlp.0.linear.weight"], t["trimlp.0.linear.bias"])
        )
        x = torch.cat([h, functional.linear(e, t["trimlp.1.weight"])[None]])
        place, given = range(len(x)), rms(x, w["input_layernorm.weight"], 1e-5)
        x = mlp(w, x + attention(w, given, given, place, place, causal(len(x))))
        seen_last = states[-1]
        h = torch.cat([h, x[-1:]])
        joined = torch.cat([seen_last, x[-1]])
        logits.append(functional.linear(joined, t[f"chimera_head.{step}.0.weight"]))
    return torch.stack(logits)


def tandem(read: Sequence[int] = (1, 4), size: int = VOCABULARY) -> Stored:
    """A small Llama with matrices on a target's states."""
    make, tensors = Random(20), dict[str, Tensor]()
    for number in range(len(read)):
        tensors |= make.layer(f"model.layers.{number}.")
        tensors[f"model.layers.{number}.input_layernorm.weight"] = make.norm(WIDTH)
        tensors[f"tandem.{number}.weight"] = make(WIDTH, WIDTH)
    tensors |= {
        "model.embed_tokens.weight": make(size, WIDTH, scale=4.0),
        "model.norm.weight": make.norm(WIDTH), "lm_head.weight": make(size, WIDTH, scale=6.0),
    }  # fmt: skip
    config = {**LAYERS, "vocab_size": size, "num_hidden_layers": len(read)}
    return Stored(config | {"tandem_layers": [*read]}, tensors)


def by_tandem(
    stored: Stored, states: Tensor, text: Sequence[int], drafted: Sequence[int]
) -> Tensor:
    """Tandem Transformers, arXiv 2402.08644 section 3, with the tokens since `text[-1]` as block.

    States are those of the target's layers at x_0 ... x_(n-1), side by side.
    """
    t, count, logits = stored.tensors, stored.config["num_hidden_layers"], []
    before, head = len(states), t["lm_head.weight"]
    for step in range(len(drafted) + 1):
        x = t["model.embed_tokens.weight"][torch.tensor([text[-1], *drafted[:step]])]
        for number, read in enumerate(states.chunk(count, 1)):
            w = part(t, f"model.layers.{number}.")
            y = torch.cat([functional.linear(read, t[f"tandem.{number}.weight"]), x])
            given = rms(y, w["input_layernorm.weight"], 1e-5)
            own, place = given[before:], range(len(y))
            x = mlp(w, x + attention(w, own, given, place[before:], place, causal(len(y))[before:]))
        logits.append(functional.linear(rms(x[-1], t["model.norm.weight"], 1e-5), head))
    return torch.stack(logits)


def fspad(size: int = VOCABULARY) -> Stored:
    """FSPAD in its authors' names."""
    make = Random(16)
    config = {**LAYERS, "architectures": ["LlamaForCausalLM"], "vocab_size": size}
    layer = make.layer("layers.0.")
    layer["layers.0.mlp.down_proj.weight"] = make(2 * WIDTH, INNER)
    tensors = {
        "embed_tokens.weight": make(size, WIDTH, scale=2.0),
        "fc.fc.weight": make(WIDTH, 2 * WIDTH), "fc.fc.bias": make(WIDTH),
        "fc.mlp.gate_proj.weight": make(INNER, WIDTH), "fc.mlp.up_proj.weight": make(INNER, WIDTH),
        "fc.mlp.down_proj.weight": make(WIDTH, INNER),
        "fc.post_attention_layernorm.weight": make.norm(WIDTH),
    }  # fmt: skip
    return Stored(config | {"feature_sampling": True}, tensors | layer)


def amphista(heads: int = 3, first: int | None = None, size: int = VOCABULARY) -> Stored:
    """Amphista, in names of our own."""
    make, tensors = Random(17), dict[str, Tensor]()
    for number in range(2):
        tensors |= make.layer(f"layers.{number}.")
        tensors[f"layers.{number}.input_layernorm.weight"] = make.norm(WIDTH)
    tensors |= {"fc.weight": make(WIDTH, 2 * WIDTH), "fc.bias": make(WIDTH)}
    for head in range(heads):
        tensors[f"heads.{head}.linear.weight"] = make(WIDTH, WIDTH)
        tensors[f"heads.{head}.linear.bias"] = make(WIDTH)
    block = make.layer("auto_embedding.")
    block |= {f"auto_embedding.self_attn.{n}_proj.weight": make(WIDTH, WIDTH) for n in "kv"}
    block["auto_embedding.input_layernorm.weight"] = make.norm(WIDTH)
    block["auto_embedding.positions"] = make(heads, WIDTH, scale=3.0)
    config = {**LAYERS, "vocab_size": size, "amphista_num_heads": heads}
    config |= {} if first is None else {"amphista_first_stage": first}
    return Stored(config, tensors | block)


def by_amphista(
    stored: Stored, table: Tensor, head: Tensor, states: Tensor, text: Sequence[int]
) -> Tensor:
    """Amphista, arXiv 2406.13170 section 3: two stages, heads, and attention among the heads.

    Arguments as of `by_clover`, states behind the target's final norm.
    """
    t, place = stored.tensors, range(len(states))
    e, stages, x = table[torch.tensor(text[1:])], [], states
    for number in range(2):
        w = part(t, f"layers.{number}.")
        if number:
            x = functional.linear(torch.cat([x, e], 1), t["fc.weight"], t["fc.bias"])
        given = rms(x, w["input_layernorm.weight"], 1e-5)
        x = mlp(w, x + attention(w, given, given, place, place, causal(len(x))))
        stages.append(x[-1])
    heads = stored.config["amphista_num_heads"]
    first = stored.config.get("amphista_first_stage", heads // 2)
    rows = []
    for k in range(heads):
        h = stages[0] if k < first else stages[1]
        name = f"heads.{k}.linear"
        rows.append(
            h + functional.silu(functional.linear(h, t[f"{name}.weight"], t[f"{name}.bias"]))
        )
    w = part(t, "auto_embedding.")
    x = torch.stack(rows) + w["positions"]
    given = rms(x, w["input_layernorm.weight"], 1e-5)
    q, k, v = (
        functional.linear(given, w[f"self_attn.{n}_proj.weight"]).unflatten(1, (4, 8))
        for n in "qkv"
    )
    shares = (torch.einsum("ihd,jhd->hij", q, k) / 8**0.5).softmax(-1)
    mixed = torch.einsum("hij,jhd->ihd", shares, v).flatten(1)
    x = mlp(w, x + functional.linear(mixed, w["self_attn.o_proj.weight"]))
    return functional.linear(x, head)


def by_fspad(
    t: Weights, head: Tensor, states: Tensor, text: Sequence[int], drafted: Sequence[int]
) -> Tensor:
    """FSPAD, arXiv 2408.15562 section 3: sampled features, and two states of the last MLP.

    Arguments as of `by_clover`, states behind the target's final norm.
    """
    tokens, g, logits = list(text[1:]), states, []
    for step in range(len(drafted) + 1):
        e = t["embed_tokens.weight"][torch.tensor(tokens)]
        x = functional.linear(torch.cat([e, g], 1), t["fc.fc.weight"], t["fc.fc.bias"])
        given = rms(x, t["fc.post_attention_layernorm.weight"], 1e-5)
        gate = functional.silu(functional.linear(e, t["fc.mlp.gate_proj.weight"]))
        up = functional.linear(given, t["fc.mlp.up_proj.weight"])
        x = x + functional.linear(gate * up, t["fc.mlp.down_proj.weight"])
        w, place = part(t, "layers.0."), range(len(tokens))
        x = x + attention(w, x, x, place, place, causal(len(tokens)))
        predict, regress = (
            mlp({**w, "mlp.down_proj.weight": half}, x)
            for half in w["mlp.down_proj.weight"].split(WIDTH)
        )
        logits.append(functional.linear(predict[-1], head))
        if step < len(drafted):
            tokens, g = [*tokens, drafted[step]], torch.cat([g, regress[-1:]])
    return torch.stack(logits)


def regressive(w: Weights, state: Tensor, token: Tensor, heads: int = 4) -> Tensor:
    """Clover-2's block (model/clover2.py `ResAttentionBlock`), for one state or several."""
    given = rms(state, w["input_layernorm.weight"], 1e-5), token, token
    q, k, v = (
        functional.linear(x, w[f"{n}.weight"], w[f"{n}.bias"]).unflatten(-1, (heads, -1))
        for x, n in zip(given, "qkv", strict=True)
    )
    lengths = [x.pow(2).sum(-1).sqrt().clamp(min=1e-5) for x in (q, k)]
    cosine = (q * k).sum(-1) / (lengths[0] * lengths[1])
    return state + (v * cosine[..., None]).flatten(-2)


def by_clover(
    stored: Stored, table: Tensor, head: Tensor, states: Tensor, text: Sequence[int],
    drafted: Sequence[int],
) -> Tensor:  # fmt: skip
    """Clover, arXiv 2405.00263 section 3, and Clover-2, arXiv 2408.00264 section 3.

    Args:
        stored: the checkpoint.
        table: embeddings where it has none of its own.
        head: the target's LM head.
        states: of the target at x_0 ... x_(n-1), before its final norm.
        text: x_0 ... x_n.
        drafted: what follows.
    """
    t, second = stored.tensors, "clover_head_mlp.weight" in stored.tensors
    table = t.get("clover_embed_tokens.weight", table)
    e, place = table[torch.tensor(text[1:])], range(len(states))
    first = part(t, "clover_head_mlp_rnn.")
    later = part(t, "clover_head_mlp_rnn2.") if second else first
    x = regressive(first, states, e) if second else states
    for number in range(stored.config["clover"]["num_layers"]):
        w = part(t, f"layers.{number}.")
        given = rms(x, w["input_layernorm.weight"], 1e-5)
        x = mlp(w, x + attention(w, given, given, place, place, causal(len(x))))
    s, logits = rms(x[-1], t["clover_norm.weight"], 1e-5), []
    for step, token in enumerate([text[-1], *drafted]):
        if step or not second:
            s = regressive(later, s, table[token])
        if second:
            name, given = ("2", torch.cat([s, table[token]])) if step else ("", s)
            name = f"clover_head_mlp{name}"
            out = functional.linear(given, t[f"{name}.weight"], t[f"{name}.bias"])
            out = rms(out, t["clover_head_norm.weight"], 1e-5)
        else:
            name = f"clover_head_mlp.{step}.0.linear"
            out = s + functional.silu(functional.linear(s, t[f"{name}.weight"], t[f"{name}.bias"]))
        logits.append(functional.linear(out, head))
    return torch.stack(logits)
