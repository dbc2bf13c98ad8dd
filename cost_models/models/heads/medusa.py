"""Heads on one state of the target, without attention: Medusa, Cerberus, Hydra, and recurrent ones.

Medusa (Cai et al. 2024, arXiv 2401.10774): residual blocks and a matrix for each token ahead.
Blockwise parallel decoding (Stern et al. 2018, arXiv 1811.03115): a hidden layer for each token
ahead before the target's own matrix. Cerberus (Liu et al. 2024, arXiv 2410.13344): blocks also read
the state of the head before.
Hydra (Ankner et al. 2024, arXiv 2402.05109): each head also reads the tokens drafted so far. MLP
speculators (Wertheimer et al. 2024, arXiv 2404.19124): a state that each drafted token moves on.
ReDrafter (Cheng et al. 2024, arXiv 2403.09919): a recurrent cell. Names of tensors: FasterDecoding/
Medusa medusa_model.py, vLLM medusa.py, zankner/Hydra hydra_model.py, foundation-model-stack
fms-extras, apple/ml-recurrent-drafter.
"""

from __future__ import annotations

from dataclasses import replace

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import HeadDescription, Levels, Output, Reads
from specplan.cost_models.models.heads.shared import Sizes, refused

_BLOCK = r"blocks.\1.\2.\3"
_VLLM = (
    (r"blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)", _BLOCK),
    (r"(?:lm_heads|lm_head)\.(\d+)\.weight", r"heads.\1.weight"),
    (r"token_map", "token_map"),
)


def medusa(config: Config, target: Sizes) -> HeadDescription:
    """Medusa heads: their authors' files, or the form of vLLM."""
    heads = config.size("medusa_num_heads", "num_heads")
    original = config.get("medusa_num_heads") is not None
    return _on_one_state(
        config, target, "medusa", heads,
        Output(
            residual=config.size("medusa_num_layers", "num_hidden_layers", default=1),
            residual_bias=original or config.flag("medusa_fc_bias"),
            head="each",
            vocabulary=config.size(
                "truncated_vocab_size", default=config.size("vocab_size", default=target.vocab_size)
            ),
        ),
    )  # fmt: skip


def cerberus(config: Config, target: Sizes) -> HeadDescription:
    """Cerberus heads; no checkpoint is public, tensors are named as Medusa's."""
    output = Output(
        residual=config.size("cerberus_num_layers", default=2),
        neighbours=True,
        head="each",
        vocabulary=config.size("vocab_size", default=target.vocab_size),
    )
    heads = config.size("cerberus_num_heads")
    return _on_one_state(config, target, "cerberus", heads, output)


def blockwise(config: Config, target: Sizes) -> HeadDescription:
    """Hidden layers of blockwise parallel decoding; no checkpoint is public."""
    output = Output(
        residual=1,
        inner=config.size("blockwise_hidden_size"),
        vocabulary=config.size("vocab_size", default=target.vocab_size),
    )
    heads = config.size("blockwise_num_heads")
    one = _on_one_state(config, target, "blockwise", heads, output)
    matrices = ((r"(\d+)\.0\.(weight|bias)", r"blocks.\1.0.\2"),
                (r"(\d+)\.2\.(weight|bias)", r"blocks.\1.1.\2"))  # fmt: skip
    return replace(one, names=matrices)


def _on_one_state(
    config: Config, target: Sizes, family: str, heads: int, output: Output
) -> HeadDescription:
    width = config.size("hidden_size", default=target.hidden_size)
    vocabulary = config.size("vocab_size", default=target.vocab_size)
    prefix = rf"(?:|{family}_head\.)"
    authors = (
        (rf"{prefix}(\d+)\.{output.residual}\.weight", r"heads.\1.weight"),
        (rf"{prefix}(\d+)\.(\d+)\.linear\.(weight|bias)", _BLOCK),
    )
    return HeadDescription(
        family=family,
        hidden_size=width,
        token_ids=vocabulary,
        reads=Reads(width=width, finished=True),
        join="feature",
        levels=Levels(count=heads),
        output=output,
        names=(*_VLLM, *authors) if family == "medusa" else (*authors, *_VLLM),
    )


def hydra(config: Config, target: Sizes) -> HeadDescription:
    """Hydra heads of the `mlp` form.

    Raises:
        MissingCapabilityError: another form.
    """
    form = config.get("hydra_head_arch", "mlp")
    if form != "mlp" or not config.flag("grounded_heads", True):
        raise refused(f"hydra_head_arch {form!r}", config.where)
    heads, blocks = config.size("hydra_num_heads"), config.size("hydra_num_layers", default=1)
    width = config.size("hidden_size", default=target.hidden_size)
    return HeadDescription(
        family="hydra",
        hidden_size=width * (heads + 1),
        token_ids=config.size("vocab_size", default=target.vocab_size),
        reads=Reads(width=width, finished=True),
        join="stack",
        steps=heads,
        output=Output(residual=blocks, head="each", bias=True, vocabulary=target.vocab_size),
        names=(
            (r"(?:|hydra_head\.)hydra_mlp\.(\d+)\.(\d+)\.linear\.(weight|bias)", _BLOCK),
            (r"(?:|hydra_head\.)hydra_mlp\.(\d+)\.0\.res_connection\.(weight|bias)",
             r"shortcuts.\1.\2"),
            (r"(?:|hydra_head\.)hydra_lm_head\.(\d+)\.(weight|bias)", r"heads.\1.\2"),
        ),
    )  # fmt: skip


def mlp_speculator(config: Config, target: Sizes) -> HeadDescription:
    """An MLP speculator of IBM."""
    steps, inner = config.size("n_predict"), config.size("inner_dim", default=target.hidden_size)
    tied = frozenset({"embedding", "norm", "head", "project"})
    return HeadDescription(
        family="mlp_speculator",
        hidden_size=inner,
        token_ids=config.size("vocab_size"),
        reads=Reads(width=config.size("emb_dim"), finished=True),
        join="sum",
        embedding="each",
        steps=steps,
        tied=tied if config.flag("tie_weights") else frozenset(),
        scaled_input=config.flag("scale_input"),
        output=Output(head="each", vocabulary=config.size("vocab_size")),
        names=(
            (r"(?:speculator\.|)emb\.(\d+)\.weight", r"embeddings.\1.weight"),
            (r"(?:speculator\.|)proj\.(\d+)\.weight", r"projects.\1.weight"),
            (r"(?:speculator\.|)ln\.(\d+)\.(weight|bias)", r"norms_by_step.\1.\2"),
            (r"(?:speculator\.|)head\.(\d+)\.weight", r"heads.\1.weight"),
        ),
    )


def redrafter(config: Config, target: Sizes) -> HeadDescription:
    """A recurrent drafter of Apple.

    Raises:
        MissingCapabilityError: without its recurrent cell, or with an input projection.
    """
    width, twice = config.size("hidden_size"), config.size("exit_dim")
    if not config.flag("rnn", True) or twice != 2 * width:
        raise refused("exit_dim other than twice the hidden size, or rnn: false", config.where)
    blocks = config.size("num_draft_layers", default=2)
    return HeadDescription(
        family="redrafter",
        hidden_size=twice,
        token_ids=config.size("vocab_size"),
        reads=Reads(width=width, finished=True),
        join="recurrent",
        output=Output(residual=blocks, head="own", vocabulary=config.size("vocab_size")),
        names=(
            (r"rnn_u\.(weight|bias)", r"cell_state.\1"),
            (r"rnn_w\.weight", "cell_token.weight"),
            (rf"lm_head\.{blocks}\.weight", "heads.0.weight"),
            (r"lm_head\.(\d+)\.linear\.(weight|bias)", r"blocks.0.\1.\2"),
        ),
    )
