"""Heads before their first step, and their weights by the names of the public formats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.models.heads.reading import read_description
from specplan.ir.errors import MissingCapabilityError
from specplan.measure.acceptance.heads import text_features
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.rotary_layers import RotaryLayer

SPREAD = 0.02
"""Standard deviation of new matrices, that of GPT-2 and Llama (`initializer_range`)."""
TRIED = 512
"""Tokens of a text along which the size of a target's states is measured."""
_EAGLE3 = (
    (r"project\.(weight|bias)", r"fc.\1"),
    (r"state_norm\.weight", "midlayer.hidden_norm.weight"),
    (r"token_norm\.weight", "midlayer.input_layernorm.weight"),
    (r"embedding\.weight", "embed_tokens.weight"),
    (r"heads\.0\.weight", "lm_head.weight"),
    (r"layers\.0\.(.*)", r"midlayer.\1"),
    (r"(norm\.weight|layers\.[1-9].*)", r"\1"),
    (r"mask_state", "mask_hidden"),
)
_CLOVER = (
    (r"embedding\.weight", "clover_embed_tokens.weight"),
    (r"by_token\.norm\.weight", "clover_norm.weight"),
    (r"norm\.weight", "clover_head_norm.weight"),
    (r"linear\.(weight|bias)", r"clover_head_mlp.\1"),
    (r"beside\.(weight|bias)", r"clover_head_mlp2.\1"),
    (r"blocks\.(\d+)\.(\d+)\.(weight|bias)", r"clover_head_mlp.\1.\2.linear.\3"),
    (r"(layers\..*)", r"\1"),
)


def _clover_block(name: str, public: str) -> tuple[tuple[str, str], ...]:
    return (
        (rf"by_token\.{name}\.norm\.weight", f"{public}.input_layernorm.weight"),
        (rf"by_token\.{name}\.([qkv]\..*)", rf"{public}.\1"),
    )


_PUBLIC: Mapping[str, tuple[tuple[str, str], ...]] = {
    "medusa": (
        (r"blocks\.(\d+)\.(\d+)\.(weight|bias)", r"blocks.\1.layers.\2.\3"),
        (r"heads\.(\d+)\.weight", r"lm_heads.\1.weight"),
    ),
    "blockwise": (
        (r"blocks\.(\d+)\.0\.(weight|bias)", r"\1.0.\2"),
        (r"blocks\.(\d+)\.1\.(weight|bias)", r"\1.2.\2"),
    ),
    "cerberus": (
        (r"blocks\.(\d+)\.(\d+)\.(weight|bias)", r"\1.\2.linear.\3"),
        (r"heads\.(\d+)\.weight", r"\1.{last}.weight"),
    ),
    "hydra": (
        (r"blocks\.(\d+)\.(\d+)\.(weight|bias)", r"hydra_mlp.\1.\2.linear.\3"),
        (r"shortcuts\.(\d+)\.(weight|bias)", r"hydra_mlp.\1.0.res_connection.\2"),
        (r"heads\.(\d+)\.(weight|bias)", r"hydra_lm_head.\1.\2"),
    ),
    "mlp_speculator": (
        (r"embeddings\.(\d+)\.weight", r"speculator.emb.\1.weight"),
        (r"projects\.(\d+)\.weight", r"speculator.proj.\1.weight"),
        (r"norms_by_step\.(\d+)\.(weight|bias)", r"speculator.ln.\1.\2"),
        (r"heads\.(\d+)\.weight", r"speculator.head.\1.weight"),
    ),
    "redrafter": (
        (r"cell_state\.(weight|bias)", r"rnn_u.\1"),
        (r"cell_token\.weight", "rnn_w.weight"),
        (r"blocks\.0\.(\d+)\.(weight|bias)", r"lm_head.\1.linear.\2"),
        (r"heads\.0\.weight", "lm_head.{last}.weight"),
    ),
    "eagle3": _EAGLE3,
    "peagle": _EAGLE3,
    "dflash": (
        (r"project\.weight", "fc.weight"),
        (r"after_project\.weight", "hidden_norm.weight"),
        (r"heads\.0\.weight", "lm_head.weight"),
        (r"(norm\.weight|layers\..*)", r"\1"),
    ),
    "eagle": (
        (r"project\.(weight|bias)", r"fc.\1"),
        (r"embedding\.weight", "embed_tokens.weight"),
        (r"(layers\..*)", r"\1"),
    ),
    "look_ahead_tokens": (
        (r"slots", "slots.weight"),
        (r"(map_\w+|adapters\.\w+)", r"\1"),
    ),
    "clover": (*_CLOVER, *_clover_block("later", "clover_head_mlp_rnn")),
    "clover2": (
        *_CLOVER,
        *_clover_block("first", "clover_head_mlp_rnn"),
        *_clover_block("later", "clover_head_mlp_rnn2"),
    ),
    "amphista": (
        (r"stage\.(weight|bias)", r"fc.\1"),
        (r"mixed\.blocks\.(\d+)\.(weight|bias)", r"heads.\1.linear.\2"),
        (r"mixed\.positions", "auto_embedding.positions"),
        (r"mixed\.norm\.weight", "auto_embedding.input_layernorm.weight"),
        (r"mixed\.middle\.weight", "auto_embedding.post_attention_layernorm.weight"),
        (r"mixed\.([qkvo])\.weight", r"auto_embedding.self_attn.\1_proj.weight"),
        (r"mixed\.(gate|up|down)\.weight", r"auto_embedding.mlp.\1_proj.weight"),
        (r"(layers\..*)", r"\1"),
    ),
    "chimera": (
        (r"ngram\.block\.(weight|bias)", r"trimlp.0.linear.\1"),
        (r"ngram\.project\.weight", "trimlp.1.weight"),
        (r"heads\.(\d+)\.weight", r"chimera_head.\1.0.weight"),
        (r"layers\.0\.(.*)", r"fast_layer1.0.\1"),
    ),
    "tandem": (
        (r"embedding\.weight", "model.embed_tokens.weight"),
        (r"norm\.weight", "model.norm.weight"),
        (r"heads\.0\.weight", "lm_head.weight"),
        (r"by_layer\.(\d+)\.weight", r"tandem.\1.weight"),
        (r"(layers\..*)", r"model.\1"),
    ),
    "fspad": (
        (r"project\.(weight|bias)", r"fc.fc.\1"),
        (r"sampling\.norm\.weight", "fc.post_attention_layernorm.weight"),
        (r"sampling\.(gate|up|down)\.weight", r"fc.mlp.\1_proj.weight"),
        (r"embedding\.weight", "embed_tokens.weight"),
        (r"(layers\..*)", r"\1"),
    ),
    "kangaroo": ((r"(norm\.weight|layers\..*)", r"\1"),),
}
"""Names of tensors in files by those in the runtime: vLLM's Medusa, SpecForge's EAGLE-3, z-lab's
DFlash, SafeAILab's EAGLE, and those of the authors; `{last}` follows the last residual block."""
TRAINED = tuple(_PUBLIC)
_PASSED = ("linear.weight", "beside.weight", "stage.weight", "r.q.weight", "r.k.weight")
_ADDED = (
    "blocks.", "ngram.block.", "mixed.blocks.", "mixed.o.", "mixed.down.", "map_up",
    "adapters.qkv_up", "adapters.output_up",
)  # fmt: skip


def new_head(
    config: Mapping[str, Any], target: CausalModel, seed: int, texts: Sequence[Sequence[int]] = ()
) -> Drafter:
    """A head that is not trained yet.

    LM heads begin as the target's, and residual blocks as zeros, so that Medusa heads begin as the
    target's own next token (arXiv 2401.10774 section 2.2.1), and Hydra's, whose shortcuts begin as
    the state; look-ahead tokens begin as embeddings of random tokens, or as the state of their
    node; streams add nothing to theirs; norms are ones, and other matrices random. Layers along the
    text and the norm behind them begin as the target's last ones, and matrices that states pass as
    ones that change nothing, as in Clover's own code.

    Args:
        config: its config.json.
        target: that it will draft for.
        seed: of the random matrices.
        texts: whose most frequent tokens a reduced vocabulary has; the first tells how large the
            target's states are.

    Raises:
        MissingCapabilityError: heads of this family are not trained here.
    """
    description = read_description(config, target, "config.json")
    if description.family not in TRAINED:
        raise MissingCapabilityError(
            f"heads of the family {description.family} are not trained yet",
            remedy=f"Train one of {', '.join(TRAINED)}, or write the config.json for another "
            "trainer by --stage pays --out.",
        )
    if description.embedding == "either":
        narrow = description.hidden_size != target.hidden_size
        description = replace(description, embedding="own" if narrow else "target")
    head = Drafter(description, target)
    count = description.output.vocabulary
    if count < description.token_ids:
        head.outputs.tokens = frequent_tokens(texts, count, description.token_ids).to(head.device)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rows = _target_rows(head)
        like = last_layer(target) if description.body.on_text else {}
        for name, weight in head.weights_by_name().items():
            given = like.get(re.sub(r"^(?:layers\.\d+|by_token)\.", "", name))
            if given is not None and given.shape == weight.shape:
                weight.copy_(given)
            elif name == "slots":
                weight.copy_(_slots(weight, target, generator))
            elif name.startswith("heads.") and weight.shape == rows.shape:
                weight.copy_(rows)
            elif weight.ndim == 1:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)
            elif name.startswith(_ADDED) and not (description.output.inner and ".0." in name):
                weight.zero_()
            elif name.startswith("shortcuts.") or name.endswith(_PASSED):
                weight.copy_(torch.eye(*weight.shape))
            else:
                weight.copy_(torch.randn(weight.shape, generator=generator) * SPREAD)
        if texts and head.entering.project is not None:
            head.entering.project.weight.div_(size_of_states(head, texts[0]))
    return head.requires_grad_(True).train()


def _target_rows(head: Drafter) -> Tensor:
    """The target's LM head, of the tokens that a head knows; twice, for two states side by side."""
    target, known = head.target, head.outputs.tokens
    rows: Tensor = target.head(
        torch.eye(target.hidden_size, dtype=head.dtype, device=head.device)
    ).T
    rows = rows if known is None else rows[known]
    return rows.repeat(1, 1 + (head.description.join == "ngram"))


def _slots(weight: Tensor, target: CausalModel, generator: torch.Generator) -> Tensor:
    """Maps that change nothing, or embeddings of tokens, whose size the target's layers know."""
    if weight.ndim == 3:
        return torch.eye(weight.shape[1]).expand_as(weight)
    chosen = torch.randint(target.vocab_size, (1, len(weight)), generator=generator)
    return target.family.embed(chosen.to(weight.device), chosen)[0]


def last_layer(target: CausalModel) -> dict[str, Tensor]:
    """A target's last layer and final norm, by the names of `transformers` in a layer.

    Empty for targets whose layers are not those of Llama's kind, or are rounded.
    """
    layers: Any = getattr(target.family, "layers", ())
    if target.quantized or not layers or not isinstance(layers[-1], RotaryLayer):
        return {}
    one: Any = layers[-1]
    size = one.head_dim
    queries, keys = one.heads * size, one.kv_heads * size
    named = dict(zip("qkv", one.qkv.split((queries, keys, keys)), strict=True)) | {"o": one.output}
    gate, up = one.gate_up.chunk(2)
    final: Any = getattr(target.family, "final_norm", None)
    norms = {
        "input_layernorm": one.input_norm, "post_attention_layernorm": one.middle_norm,
        "self_attn.q_norm": one.query_norm, "self_attn.k_norm": one.key_norm, "norm": final,
    }  # fmt: skip
    return {
        **{f"self_attn.{name}_proj.weight": matrix for name, matrix in named.items()},
        **{
            "mlp.gate_proj.weight": gate,
            "mlp.up_proj.weight": up,
            "mlp.down_proj.weight": one.down,
        },
        **{f"{name}.weight": norm[1] for name, norm in norms.items() if norm is not None},
    }


@torch.no_grad()
def size_of_states(head: Drafter, tokens: Sequence[int]) -> float:
    """Root mean square of what a head projects into its residual stream, along a text.

    Layers in the middle of a target may write a hundred times what a new layer does, whose part
    would be lost beside it: the projection begins as many times smaller, and learns as many times
    slower. 1 where a norm precedes or follows it.
    """
    reads = head.description.reads
    normed = reads.finished or reads.norm != "none" or reads.normed_after
    if normed or head.entering.project is None:
        return 1.0
    texts = Texts.alone(torch.tensor([tokens[:TRIED]], device=head.device))
    states = text_features(head.target, texts, reads.layers)
    return max(states.float().square().mean().sqrt().item(), 1.0)


def frequent_tokens(texts: Iterable[Iterable[int]], count: int, size: int) -> Tensor:
    """The most frequent tokens of some texts, rising, int64 `[count]`; filled up by low ids."""
    counts = Counter(token for text in texts for token in text)
    ranked = sorted(range(size), key=lambda token: (-counts[token], token))
    return torch.tensor(sorted(ranked[:count]))


def public_tensors(head: Drafter) -> dict[str, Tensor]:
    """A head's weights, and the map of a reduced vocabulary, by the names of its format."""
    rules = _PUBLIC[head.description.family]
    last = str(head.description.output.residual)
    tensors: dict[str, Tensor] = {}
    for name, weight in head.weights_by_name().items():
        matches = ((re.fullmatch(pattern, name), into) for pattern, into in rules)
        public = next(match.expand(into) for match, into in matches if match)
        public = public.replace("{last}", last)
        tensors[public] = weight.detach().cpu().contiguous()
    tokens = head.outputs.tokens
    if tokens is not None:
        known = tokens.cpu()
        if any(into == "token_map" for _, into in head.description.names):
            return tensors | {"token_map": known}
        tensors["d2t"] = known - torch.arange(len(known))
        members = torch.zeros(head.description.token_ids, dtype=torch.bool)
        tensors["t2d"] = members.index_fill(0, known, True)
    return tensors
