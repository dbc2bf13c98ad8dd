"""Layers that a target brings or that continue its lower ones: modules, parallel heads, Kangaroo.

DeepSeek-V3 (arXiv 2412.19437 section 2.2): a module joins the last hidden state with the embedding
of the next token, runs one layer, and gives logits by a norm and the target's head. Names of
tensors: deepseek-ai DeepSeek-V3 (`model.layers.N`, behind the target's own N layers), MiMo
(`model.mtp_layers`), Qwen3-Next and Qwen3.5 (`mtp`). Multi-token prediction (Gloeckle et al. 2024,
arXiv 2404.19737): beside the target's last layer, others read the same state of its trunk, one for
each further token, and share its final norm and head. Kangaroo (Liu et al. 2024, arXiv 2404.18911):
one attention, without an MLP, on the state of an early layer.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.files.safetensors_headers import read_config, stored_tensors
from specplan.cost_models.models.heads.description import (
    Body,
    HeadDescription,
    Levels,
    Output,
    Reads,
)
from specplan.cost_models.models.heads.shared import LAYER_NAMES, Sizes, layer_config, one_layer
from specplan.ir.errors import UsageError

_OTHER = r"(?!{own}).*"


def mtp(config: Config, target: Sizes, index: int, stored: Collection[str]) -> HeadDescription:
    """A module of a target.

    Args:
        config: of the target.
        target: its structure.
        index: of the module, from 0.
        stored: names of the tensors in the target's files, which tell the form.

    Raises:
        UsageError: the files hold no such module.
        MissingCapabilityError: its layer is of a kind that no head is built of.
    """
    for form in (_deepseek(target.num_layers, index), _mimo(index), _qwen(index)):
        prefix, names, after_norm, own_head = form
        if _holds(form, stored):
            break
    else:
        raise UsageError(
            f"the checkpoint holds no multi-token-prediction module {index}",
            where=config.where,
            remedy="Take the published files: saving a target by `transformers` drops its modules.",
        )
    layers = tuple((prefix + name, canonical) for name, canonical in names)
    own_head = own_head and any(re.match(prefix + r"shared_head\.head", name) for name in stored)
    return HeadDescription(
        family="mtp",
        hidden_size=target.hidden_size,
        token_ids=target.vocab_size,
        reads=Reads(width=target.hidden_size, finished=True, norm="each"),
        join="concat",
        embedding="either",
        begins=index + 1,
        first_embedding=prefix != _deepseek(target.num_layers, index)[0],
        inner_norm=float(config.get("rms_norm_eps", 1e-6)),
        body=Body(layers=1, config=layer_config(config, 1)),
        output=Output(
            norm=True,
            onward="after_norm" if after_norm else "before_norm",
            head="own" if own_head else "target",
            vocabulary=target.vocab_size,
        ),
        names=(*layers, (_OTHER.format(own=prefix), "")),
    )


def stored_modules(folder: Path) -> int:
    """How many modules a target's files hold, of those that its config.json states."""
    values = read_config(folder)
    config = Config(values, str(folder))
    count = config.count("num_nextn_predict_layers") or config.count("num_mtp_layers")
    if not count:
        return 0
    stored = stored_tensors(folder)
    layers = config.size("num_hidden_layers")
    modules = 0
    while modules < count:
        forms = (_deepseek(layers, modules), _mimo(modules), _qwen(modules))
        if not any(_holds(form, stored) for form in forms):
            break
        modules += 1
    return modules


def _holds(form: _Form, stored: Collection[str]) -> bool:
    """Whether files hold the layer of a module in this form."""
    layer = [form[0] + name for name, into in form[1] if into.startswith("layers.")]
    return any(re.fullmatch(pattern, name) for pattern in layer for name in stored)


_Form = tuple[str, tuple[tuple[str, str], ...], bool, bool]
"""Prefix, names behind it, whether steps go on after the norm, whether a head may be its own."""


def _deepseek(layers: int, index: int) -> _Form:
    names = (
        (r"enorm\.weight", "token_norm.weight"),
        (r"hnorm\.weight", "state_norm.weight"),
        (r"eh_proj\.weight", "project.weight"),
        (r"shared_head\.norm\.weight", "norm.weight"),
        (r"shared_head\.head\.weight", "heads.0.weight"),
        (r"embed_tokens\.weight", "embedding.weight"),
        *one_layer(""),
    )
    return rf"model\.layers\.{layers + index}\.", names, False, True


def _mimo(index: int) -> _Form:
    names = (
        (r"token_layernorm\.weight", "token_norm.weight"),
        (r"hidden_layernorm\.weight", "state_norm.weight"),
        (r"input_proj\.weight", "project.weight"),
        (r"final_layernorm\.weight", "norm.weight"),
        *one_layer(""),
    )
    return rf"model\.mtp_layers\.{index}\.", names, True, False


def _qwen(index: int) -> _Form:
    names = (
        (r"pre_fc_norm_embedding\.weight", "token_norm.weight"),
        (r"pre_fc_norm_hidden\.weight", "state_norm.weight"),
        (r"fc\.weight", "project.weight"),
        (r"norm\.weight", "norm.weight"),
        *one_layer(rf"layers\.{index}\."),
    )
    return r"mtp\.", names, True, False


def parallel_layers(config: Config, target: Sizes) -> HeadDescription:
    """Layers beside the target's last one, a token further ahead each.

    Its authors publish pickles in the form of Llama's own code; names are those that converters
    to `transformers` give the tensors of a layer.
    """
    count = config.size("n_future_tokens") - 1  # the first is the target's own last layer
    if count < 1:
        raise UsageError("n_future_tokens below 2 leaves no heads", where=config.where)
    return HeadDescription(
        family="multi_token",
        hidden_size=target.hidden_size,
        token_ids=config.size("vocab_size", default=target.vocab_size),
        reads=Reads(
            layers=(target.num_layers - 1,),
            width=config.size("hidden_size", default=target.hidden_size),
        ),
        join="feature",
        body=Body(layers=count, config=layer_config(config, count), side_by_side=True),
        levels=Levels(count=count),
        output=Output(finished=True, vocabulary=target.vocab_size),
        names=tuple((name.replace("layers", "extra_heads", 1), into) for name, into in LAYER_NAMES),
    )


def kangaroo(config: Config, target: Sizes) -> HeadDescription:
    """Kangaroo's adapter on the state of an early layer; the target's head follows.

    With `exit_mlp`, a key of our own, it is a whole layer, as EESD's exits are (arXiv 2406.03853).
    """
    width = config.size("hidden_size", default=target.hidden_size)
    layer = config.size("exit_layer", default=2)
    return HeadDescription(
        family="kangaroo",
        hidden_size=width,
        token_ids=config.size("vocab_size", default=target.vocab_size),
        reads=Reads(layers=(layer,), width=target.hidden_size),
        join="feature",
        begins=0,
        inner_norm=float(config.get("rms_norm_eps", 1e-6)),
        body=Body(layers=1, config=layer_config(config, 1), mlp=config.flag("exit_mlp")),
        output=Output(norm=True, vocabulary=target.vocab_size),
        names=((r"norm\.weight", "norm.weight"), *LAYER_NAMES),
    )
