"""Which part of a model a stored tensor belongs to, and the exact width of every part."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from specplan.cost_models.models.layers import Decoder
from specplan.cost_models.models.number_formats import NumberFormat, WeightFormats, mixture
from specplan.cost_models.models.parameters import parameter_inventory
from specplan.ir.errors import UsageError

_BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", "e_score_correction_bias")
_FOREIGN = re.compile(
    r"(^|\.)(vision_tower|vision_model|visual|audio_tower|multi_modal_projector|mm_projector|mtp|mtp_layers)\."
)
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|blk)\.(\d+)\.")
_PARTS = (
    (
        "other",
        re.compile(
            r"norm|(^|\.)ln_|\.bias$|_bias$|\.sinks$|wpe|embed_positions|conv1d|\.A_log$|\.D$"
        ),
    ),
    ("embedding", re.compile(r"embed_tokens|word_embeddings|embed_in|wte\.")),
    ("head", re.compile(r"lm_head|embed_out")),
    ("router", re.compile(r"\.router\.|shared_expert_gate|(mlp|block_sparse_moe)\.gate\.")),
    ("shared_experts", re.compile(r"shared_expert")),
    ("experts", re.compile(r"\.experts\.")),
    ("attention", re.compile(r"attn|attention|mamba\.|mixer\.")),
    ("mlp", re.compile(r"mlp|feed_forward|\.fc[12]\.")),
)


def is_parameter(name: str, decoder: Decoder) -> bool:
    """Whether a stored tensor is a parameter of the decoder.

    No buffers, no second copy of a tied head, no vision or audio tower, no drafter layers.
    """
    if name.endswith(_BUFFERS) or _FOREIGN.search(name):
        return False
    if decoder.tied_embeddings and name.endswith("lm_head.weight"):
        return False
    layer = _LAYER.search(name)
    return layer is None or int(layer[1]) < decoder.num_layers


def part_of(name: str) -> str:
    """The part of `WeightFormats` that a tensor of a safetensors file belongs to."""
    return next((part for part, words in _PARTS if words.search(name)), "other")


def elements_by_part(decoder: Decoder) -> Counter[str]:
    """Parameters of each part of `WeightFormats` that has some."""
    known = {entry.name for entry in fields(WeightFormats)}
    elements: Counter[str] = Counter()
    for part, count in parameter_inventory(decoder).items():
        elements[part if part in known else "other"] += count
    return +elements


def exact_formats(
    decoder: Decoder,
    formats: WeightFormats,
    stored: Iterable[tuple[str, int]],
    where: str,
) -> WeightFormats:
    """The formats with the widths that make every part take its stored bytes.

    Args:
        decoder: gives the elements of each part.
        formats: what the config says: names, and the math.
        stored: per tensor its part and its bytes.
        where: what to name in errors.

    Raises:
        UsageError: a part is missing, or takes what no format takes.
    """
    sizes: Counter[str] = Counter()
    for part, size in stored:
        sizes[part] += size
    elements = elements_by_part(decoder)
    exact = {}
    for part in elements.keys() | sizes.keys():
        bits = 8 * sizes[part] / elements[part] if elements[part] else 0.0
        if not 1.0 <= bits <= 72.0:
            raise UsageError(
                f"the weights hold {sizes[part]} bytes of {part}, "
                f"config.json describes {elements[part]} parameters",
                where=where,
                remedy="Take config.json and weights from the same checkpoint.",
            )
        form = formats.part(part)
        exact[part] = mixture(form.name, form, float(sizes[part]), elements[part])
    if decoder.tied_embeddings:
        exact["head"] = exact["embedding"]
    return replace(formats, **exact)


def check_elements(
    decoder: Decoder, counts: Mapping[str, Mapping[NumberFormat, int]], where: str
) -> None:
    """Check that stored tensors hold exactly the described parameters, part by part.

    Raises:
        UsageError: they do not; names the first part.
    """
    described = elements_by_part(decoder)
    for part in sorted(described.keys() | counts.keys()):
        stored = sum(counts.get(part, {}).values())
        if stored != described[part]:
            raise UsageError(
                f"the tensors of {part} hold {stored} parameters, "
                f"the metadata describe {described[part]}",
                where=where,
                remedy="The file may come from an unusual converter; convert it again.",
            )
