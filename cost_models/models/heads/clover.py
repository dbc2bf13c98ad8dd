"""Clover: layers along the text, and then one token after the other enters the state by attention.

Clover (Xiao et al. 2024, arXiv 2405.00263): an augmenting block, one transformer layer, runs once
per step on the target's state; each token attends into that state (the regressive connection), and
each of its steps has a residual block before the target's own LM head. Clover-2 (Xiao et al. 2024,
arXiv 2408.00264): the text's next token enters before the augmenting block, which has two layers,
by a block of its own, and an output projector reads the drafted token's embedding beside the state.

Names of tensors and the form of the attention: XiaoBin1992/clover, model/clover2.py, which is
Clover-2. Of Clover no code is public: its heads have Clover-2's blocks here, in the order of its
paper, and `clover.version: 1` in config.json. Embeddings are the file's `clover_embed_tokens` where
it has them (the authors put rows of the LM head there), else the target's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import (
    Body,
    HeadDescription,
    Output,
    Reads,
    TokenBlocks,
)
from specplan.cost_models.models.heads.shared import LAYER_NAMES, Sizes, layer_config, refused
from specplan.cost_models.models.new_heads import layered_config
from specplan.ir.errors import UsageError


def clover(config: Config, target: Sizes) -> HeadDescription:
    """Clover-2, or Clover where the config says `version: 1`.

    Raises:
        MissingCapabilityError: another version.
        UsageError: the attention heads do not divide the hidden size.
    """
    own = Config(config.get("clover") or {}, config.where)
    version, width = own.size("version", default=2), config.size("hidden_size")
    if version not in (1, 2):
        raise refused(f"clover.version {version}", config.where)
    heads = config.size("num_attention_heads")
    if width % heads:
        what = f"{heads} attention heads do not divide the hidden size {width}"
        raise UsageError(what, where=config.where)
    second = version == 2
    blocks = [("clover_head_mlp_rnn", "first" if second else "later")]
    blocks += [("clover_head_mlp_rnn2", "later")] if second else []
    vocabulary = config.size("vocab_size")
    return HeadDescription(
        family="clover2" if second else "clover",
        hidden_size=width,
        token_ids=vocabulary,
        reads=Reads(width=target.hidden_size),
        join="attend",
        embedding="either",
        inner_norm=float(config.get("rms_norm_eps", 1e-6)),
        steps=1 if second else own.size("num_heads", default=5),
        body=Body(
            layers=own.size("num_layers", default=version),
            config=layer_config(config, own.size("num_layers", default=version)),
            on_text=True,
        ),
        by_token=TokenBlocks(heads=heads, first=second),
        output=Output(norm=second, linear=second, residual=1 - second, vocabulary=vocabulary),
        names=(
            *(name for old, new in blocks for name in _block(old, new)),
            (r"clover_embed_tokens\.weight", "embedding.weight"),
            (r"clover_norm\.weight", "by_token.norm.weight"),
            (r"clover_head_norm\.weight", "norm.weight"),
            (r"clover_head_mlp\.(weight|bias)", r"linear.\1"),
            (r"clover_head_mlp2\.(weight|bias)", r"beside.\1"),
            (r"clover_head_mlp\.(\d+)\.(\d+)\.linear\.(weight|bias)", r"blocks.\1.\2.\3"),
            (r"lm_head\.weight", ""),
            *LAYER_NAMES,
        ),
    )  # fmt: skip


def _block(name: str, into: str) -> tuple[tuple[str, str], ...]:
    """Names of a block's tensors."""
    return (
        (rf"{name}\.input_layernorm\.weight", f"by_token.{into}.norm.weight"),
        (rf"{name}\.([qkv])\.(weight|bias)", rf"by_token.{into}.\1.\2"),
    )


def clover_config(
    target: Mapping[str, Any], where: str, *, version: int = 2, heads: int = 5
) -> dict[str, Any]:
    """config.json of a Clover head for a target: five steps, as its authors train (`main_clover2`).

    Args:
        target: the target's config.json; the text part of one for several modalities.
        where: its path, for errors.
        version: 1 or 2, which is also the number of its layers.
        heads: drafted tokens that it is trained for.

    Raises:
        UsageError: the target has no such sizes.
    """
    sizes = {"version": version, "num_heads": heads, "num_layers": version}
    return {"model_type": "llama", "clover": sizes, **layered_config(target, where)}
