"""`quantization_config` of a config.json: which matrices are stored how.

One reader per `quant_method` of Hugging Face transformers (its `utils/quantization_config.py`)
and of the packages that write the files: compressed-tensors, GPTQModel, AutoAWQ, bitsandbytes,
NVIDIA Model Optimizer. Routers, embeddings, norms and biases stay as they are in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.layers import Decoder
from specplan.cost_models.models.modules import any_of, matrices
from specplan.cost_models.models.number_formats import (
    NumberFormat,
    WeightFormats,
    integer_groups,
    joined,
    number_format,
)
from specplan.ir.errors import MissingCapabilityError, UsageError

_MATRICES = ("attention", "mlp", "shared_experts", "experts", "head")


@dataclass(frozen=True)
class Scheme:
    """What a `quantization_config` says.

    Attributes:
        forms: formats with the patterns of the modules that are stored so, first match first.
        excluded: patterns of modules that are not quantised.
        parts: parts that may be quantised at all.
        cache: format of the cache; None where it says nothing.
    """

    forms: tuple[tuple[tuple[str, ...], NumberFormat], ...]
    excluded: tuple[str, ...] = ()
    parts: tuple[str, ...] = _MATRICES
    cache: NumberFormat | None = None

    def widths(self, decoder: Decoder, plain: NumberFormat) -> dict[str, dict[NumberFormat, int]]:
        """Elements of each format, part by part."""
        excluded = any_of(self.excluded)
        forms = [("Linear" in patterns, any_of(patterns), form) for patterns, form in self.forms]
        elements: dict[str, dict[NumberFormat, int]] = {}
        for module in matrices(decoder):
            chosen = plain
            if module.part in self.parts and not excluded(module):
                chosen = next(
                    (form for every, named, form in forms if every or named(module)), plain
                )
            counts = elements.setdefault(module.part, {})
            counts[chosen] = counts.get(chosen, 0) + module.elements
        return elements


def read_formats(
    config: Config, decoder: Decoder, dtype: str
) -> tuple[WeightFormats, NumberFormat]:
    """Formats of the weights, part by part, and of the cache.

    A part whose matrices differ gets their mean width and the math of the most common one.

    Raises:
        MissingCapabilityError: the method, or what it says, is not known.
    """
    plain = number_format(dtype, config.where)
    formats = WeightFormats.uniform(plain)
    settings = config.get("quantization_config")
    if not settings:
        return formats, plain
    try:
        scheme = _scheme(Config(settings, config.where))
        widths = scheme.widths(decoder, plain)
    except (TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"quantization_config has a value of the wrong kind ({error})", where=config.where
        ) from error
    parts = {part: joined(counts) for part, counts in widths.items()}
    if decoder.tied_embeddings:
        parts["head"] = plain
    return replace(formats, **parts), scheme.cache or plain


def _scheme(settings: Config) -> Scheme:
    method = str(settings.get("quant_method", "unnamed"))
    reader = _READERS.get(method)
    if reader is None:
        raise _unknown(settings, f"quantised weights ({method})")
    return reader(settings)


def _unknown(settings: Config, what: str) -> MissingCapabilityError:
    return MissingCapabilityError(
        f"{what} cannot be priced yet",
        where=settings.where,
        remedy=f"Known methods: {', '.join(sorted(_READERS))}; or give the format of the weights "
        "yourself (weight_format).",
    )


def _everywhere(form: NumberFormat, excluded: Sequence[str], **options: Any) -> Scheme:
    return Scheme(((("Linear",), form),), tuple(excluded), **options)


def _fp8(settings: Config) -> Scheme:
    """Blocks of 128 x 128 as DeepSeek-V3 has them, or a scale per row or tensor."""
    block = settings.get("weight_block_size")
    form = number_format("fp8")
    if block:
        elements = block[0] * block[1]
        form = NumberFormat(f"fp8-{block[0]}x{block[1]}", elements, elements + 4.0, "fp8")
    return _everywhere(form, [*settings.get("modules_to_not_convert", []), "lm_head"])


def _gptq(settings: Config) -> Scheme:
    """GPTQ and AWQ: groups along the inputs; a size of -1 is one group per row."""
    bits = settings.size("bits", "w_bit")
    group = settings.get("group_size", settings.get("q_group_size", 128))
    form = integer_groups(bits, group) if group > 0 else NumberFormat(f"int{bits}", 8, float(bits))
    excluded = list(settings.get("modules_to_not_convert", []))
    if not settings.flag("lm_head"):
        excluded.append("lm_head")
    return _everywhere(form, excluded)


def _bitsandbytes(settings: Config) -> Scheme:
    excluded = [*settings.get("llm_int8_skip_modules", []), "lm_head"]
    if settings.flag("load_in_8bit"):
        return _everywhere(number_format("w8a8"), excluded)
    double = settings.flag("bnb_4bit_use_double_quant")
    return _everywhere(number_format("nf4-double" if double else "nf4"), excluded)


def _mxfp4(settings: Config) -> Scheme:
    """gpt-oss: the routed experts only; their kernels multiply in the dtype."""
    excluded = settings.get("modules_to_not_convert", [])
    return _everywhere(number_format("mxfp4"), excluded, parts=("experts",))


def _modelopt(settings: Config) -> Scheme:
    """Model Optimizer: one algorithm for all matrices but the excluded ones."""
    names = {
        "FP8": "fp8",
        "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
        "NVFP4": "nvfp4",
        "W4A16_NVFP4": "nvfp4-weights",
        "MXFP4": "mxfp4-w4a4",
    }
    algorithm = str(settings.get("quant_algo", "unnamed")).upper()
    if algorithm not in names:
        raise _unknown(settings, f"Model Optimizer's algorithm {algorithm}")
    excluded = settings.get("ignore", settings.get("exclude_modules", []))
    return _everywhere(number_format(names[algorithm]), excluded, cache=_cache(settings))


def _compressed(settings: Config) -> Scheme:
    """compressed-tensors: groups of modules, each with a scheme for weights and activations."""
    forms = tuple(
        (tuple(group.get("targets", ["Linear"])), _compressed_form(settings, group))
        for group in settings.get("config_groups", {}).values()
    )
    if not forms:
        raise _unknown(settings, "compressed-tensors without config_groups")
    return Scheme(forms, tuple(settings.get("ignore", [])), cache=_cache(settings))


def _compressed_form(settings: Config, group: Mapping[str, Any]) -> NumberFormat:
    weights = group.get("weights") or {}
    inputs = group.get("input_activations")
    bits, kind = weights.get("num_bits"), weights.get("type")
    size = weights.get("group_size") or 0
    plain_inputs = inputs is None
    if (kind, bits) == ("float", 8):
        return number_format("fp8-weights" if plain_inputs else "fp8")
    if (kind, bits) == ("float", 4):
        name = "mxfp4" if size == 32 else "nvfp4"
        suffix = {"mxfp4": ("", "-w4a4"), "nvfp4": ("-weights", "")}[name]
        return number_format(name + suffix[not plain_inputs])
    if kind == "int" and bits in (4, 8):
        zero = 0 if weights.get("symmetric", True) else bits
        plain = NumberFormat(f"int{bits}", 8, float(bits))
        form = integer_groups(bits, size, zero) if size > 0 else plain
        return form if plain_inputs else replace(form, name=f"w{bits}a8", math="int8")
    raise _unknown(settings, f"compressed-tensors with {bits} bits of type {kind}")


def _cache(settings: Config) -> NumberFormat | None:
    scheme = settings.get("kv_cache_scheme") or {}
    algorithm = str(settings.get("kv_cache_quant_algo", "")).upper()
    if algorithm == "FP8" or (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
        return number_format("fp8")
    if scheme or algorithm:
        raise _unknown(settings, f"a cache quantised as {algorithm or dict(scheme)}")
    return None


_READERS: Mapping[str, Callable[[Config], Scheme]] = {
    "awq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
