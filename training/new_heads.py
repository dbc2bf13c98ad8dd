"""Heads before their first step, and their weights by the names of the public formats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.models.heads.description import HeadDescription
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
TRAINED = (
    "medusa", "blockwise", "cerberus", "hydra", "mlp_speculator", "redrafter", "eagle3", "peagle",
    "dflash", "eagle", "look_ahead_tokens", "clover", "clover2", "amphista", "chimera", "tandem",
    "fspad", "kangaroo",
)  # fmt: skip
_GROUP = re.compile(r"\((?!\?)(?:[^()]|\(\?:[^()]*\))*\)")
_CHOICE = re.compile(r"\(\?:([^()|]*)[^()]*\)")
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


def name_in_files(description: HeadDescription, weight: str) -> str:
    """The name in files of a weight: `HeadDescription.names` backwards.

    Raises:
        KeyError: no file has it.
    """
    for pattern, into in description.names:
        place = re.escape(into)
        for number, group in enumerate(_GROUP.findall(pattern), start=1):
            place = place.replace(rf"\\{number}", group)
        match = re.fullmatch(place, weight)
        if match is not None:
            form = _CHOICE.sub(r"\1", _GROUP.sub("{}", pattern))
            return re.sub(r"\\(.)", r"\1", form).format(*match.groups())
    raise KeyError(weight)


def public_tensors(head: Drafter) -> dict[str, Tensor]:
    """A head's weights, and the map of a reduced vocabulary, by the names of its format."""
    tensors = {
        name_in_files(head.description, name): weight.detach().cpu().contiguous()
        for name, weight in head.weights_by_name().items()
    }
    tokens = head.outputs.tokens
    if tokens is not None:
        known = tokens.cpu()
        if any(into == "token_map" for _, into in head.description.names):
            return tensors | {"token_map": known}
        tensors["d2t"] = known - torch.arange(len(known))
        members = torch.zeros(head.description.token_ids, dtype=torch.bool)
        tensors["t2d"] = members.index_fill(0, known, True)
    return tensors
