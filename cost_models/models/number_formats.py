"""Number formats: the bytes that weights and cached keys take, and what multiplies them.

A *weight-only* format is unpacked to the model's own dtype before it is multiplied; a format with
`math` is multiplied as it is (activations are quantised on the way), at that format's peak.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specplan.ir.errors import UsageError

DTYPE_BYTES = {"float64": 8.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0}


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How numbers are stored.

    Attributes:
        name: what people call it.
        block_elements: elements of one block, which share their scales.
        block_bytes: bytes of one block, its scales and zero points included.
        math: number format of the multiply-adds ("fp8", "int8", "fp4"); None for the model's dtype.
    """

    name: str
    block_elements: int
    block_bytes: float
    math: str | None = None

    @property
    def bytes_per_element(self) -> float:
        """Mean bytes of one element."""
        return self.block_bytes / self.block_elements


@dataclass(frozen=True, slots=True)
class WeightFormats:
    """The format of each part of a model's weights.

    Attributes:
        attention: projections of attention.
        mlp: dense MLPs.
        shared_experts: experts that every token passes.
        experts: routed experts.
        router: what scores the experts.
        head: the LM head.
        embedding: the table of input embeddings.
        other: norms, biases, positions and projections of the embedding.
    """

    attention: NumberFormat
    mlp: NumberFormat
    shared_experts: NumberFormat
    experts: NumberFormat
    router: NumberFormat
    head: NumberFormat
    embedding: NumberFormat
    other: NumberFormat

    @classmethod
    def uniform(cls, form: NumberFormat) -> WeightFormats:
        """The same format in every part."""
        return cls(form, form, form, form, form, form, form, form)

    def with_matrices(self, form: NumberFormat) -> WeightFormats:
        """These formats with another one for the layers' matrices, routers excepted."""
        return replace(self, attention=form, mlp=form, shared_experts=form, experts=form)

    def part(self, name: str) -> NumberFormat:
        """The format of one of the attributes above."""
        form: NumberFormat = getattr(self, name)
        return form

    def of_parameters(self, part: str) -> NumberFormat:
        """The format of a part of `parameter_inventory`, which has more parts."""
        return self.part(part if part in self.__slots__ else "other")


def integer_groups(bits: int, group: int, zero_bits: int | None = None) -> NumberFormat:
    """Weights as integers in groups, unpacked before use.

    A group has a scale of 16 bits and a zero point.

    Args:
        bits: of one weight.
        group: weights that share a scale.
        zero_bits: of a group's zero point; default `bits`, as GPTQ and AWQ pack them (also
            where the zero point is fixed); 0 for none (compressed-tensors, symmetric); 16 for
            the pairs of PyTorch's tinygemm kernel.
    """
    zero = bits if zero_bits is None else zero_bits
    suffix = {bits: "", 0: "-symmetric", 16: "-tinygemm"}.get(zero, f"-zero{zero}")
    size = (bits * group + 16 + zero) / 8
    return NumberFormat(f"int{bits}-g{group}{suffix}", group, size)


def mixture(name: str, form: NumberFormat, size: float, elements: int) -> NumberFormat:
    """A format with the mean width of `elements` that take `size` bytes; the math of `form`."""
    return NumberFormat(name, elements, size, form.math)


def joined(counts: Mapping[NumberFormat, int]) -> NumberFormat:
    """One format for elements of several: the mean width, the math of the most common one."""
    most = max(counts, key=lambda form: counts[form])
    if len(counts) == 1:
        return most
    name = "/".join(sorted(form.name for form in counts))
    size = sum(form.bytes_per_element * count for form, count in counts.items())
    return mixture(name, most, size, sum(counts.values()))


def _floats() -> Iterator[NumberFormat]:
    for name, width in DTYPE_BYTES.items():
        yield NumberFormat(name, 1, width)


def _quantised() -> Iterator[NumberFormat]:
    yield NumberFormat("fp8", 1, 1.0, "fp8")
    # a float32 scale per 128 x 128 weights, DeepSeek-V3 (arXiv 2412.19437) section 3.3
    yield NumberFormat("fp8-128x128", 128 * 128, 128 * 128 + 4.0, "fp8")
    yield NumberFormat("fp8-weights", 1, 1.0)
    yield NumberFormat("int8", 1, 1.0)
    yield NumberFormat("w8a8", 1, 1.0, "int8")
    for bits in (4, 8):
        for group in (32, 64, 128):
            for zero in (None, 0, 16):
                yield integer_groups(bits, group, zero)
    # an 8-bit scale per block: OCP Microscaling v1.0, NVIDIA's NVFP4 (16 weights per scale)
    yield NumberFormat("mxfp4", 32, 17.0)
    yield NumberFormat("mxfp4-w4a4", 32, 17.0, "fp4")
    yield NumberFormat("nvfp4", 16, 9.0, "fp4")
    yield NumberFormat("nvfp4-weights", 16, 9.0)
    # bitsandbytes: a float32 maximum per 64 weights, or an 8-bit one and a float32 per 256 of them
    yield NumberFormat("nf4", 64, 36.0)
    yield NumberFormat("nf4-double", 64 * 256, 256 * 33 + 4.0)


GGUF_BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "F64": (1, 8),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q8_1": (32, 40),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "Q8_K": (256, 292),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "TQ1_0": (256, 54),
    "TQ2_0": (256, 66),
    "MXFP4": (32, 17),
    "NVFP4": (64, 36),
    "Q1_0": (128, 18),
}
"""Block sizes of ggml, (elements, bytes): ggml-common.h, and constants.py of `gguf` 0.19."""


def _ggml() -> Iterator[NumberFormat]:
    # llama.cpp multiplies some of them in int8; priced as unpacked, at the peak of the dtype
    for name, (elements, size) in GGUF_BLOCKS.items():
        yield NumberFormat(name, elements, float(size))


RUN_FORMATS = {"Q8_0": 8, "Q4_0": 4}
"""Formats that models run in here besides the number types of torch, with the bits of a weight.

The layers' matrices are in such a format, the head and the embeddings in `OUTER_FORMAT`, everything
else is float32.
"""
OUTER_FORMAT = "Q8_0"
CACHE_FORMATS = ("float16", "bfloat16", "fp8")
"""Formats that keys and values are stored in here, under any number type of the model.

Numbers are rounded to it as they are written; `fp8` is E4M3 without scales (arXiv 2209.05433), as
serving engines store caches by default.
"""

FORMATS: dict[str, NumberFormat] = {
    form.name: form for source in (_floats(), _quantised(), _ggml()) for form in source
}
"""All formats known by name."""


_SHORT = {"int4": "int4-g128"}
"""What people call a format when they leave its usual group size out."""


def number_format(name: str, where: str = "number format") -> NumberFormat:
    """A format by name.

    Raises:
        UsageError: no such format.
    """
    form = FORMATS.get(_SHORT.get(name, name))
    if form is not None:
        return form
    raise UsageError(
        f"number format {name!r} is unknown",
        where=where,
        remedy=f"Use one of {', '.join(FORMATS)}.",
    )


def cache_formats(problem: Mapping[str, Any]) -> dict[str, str]:
    """Of a problem's JSON form: by role, the format of a cache that is not as the model is."""
    stated = models_by_role(problem).items()
    return {role: one["kv_format"] for role, one in stated if one.get("kv_format")}


def models_by_role(problem: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What a problem's JSON form states of its target and of each draft."""
    models = problem.get("models", {})
    named = {draft["name"]: draft for draft in models.get("drafts", ())}
    return {"target": models.get("target", {}), **named}


def known_format(name: str) -> str:
    """The same name.

    Raises:
        ValueError: no such format; what validators of fields raise.
    """
    try:
        number_format(name)
    except UsageError as error:
        raise ValueError(f"{error.what}. {error.remedy}") from None
    return name
