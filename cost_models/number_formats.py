"""Number formats: the bytes that weights and cached keys take, and what multiplies them.

A *weight-only* format is unpacked to the model's own dtype before it is multiplied; a format with
`math` is multiplied as it is (activations are quantised on the way), at that format's peak.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def part(self, name: str) -> NumberFormat:
        """The format of one of the attributes above."""
        found: NumberFormat = getattr(self, name)
        return found

    def of_parameters(self, part: str) -> NumberFormat:
        """The format of a part of `parameter_inventory`, which tells more parts apart."""
        return self.part(part if part in self.__slots__ else "other")


def _plain() -> tuple[NumberFormat, ...]:
    floats = (NumberFormat(name, 1, width) for name, width in DTYPE_BYTES.items())
    return (
        *floats,
        NumberFormat("fp8", 1, 1.0, "fp8"),
        NumberFormat("int8", 1, 1.0),
        NumberFormat("w8a8-int8", 1, 1.0, "int8"),
    )


FORMATS: dict[str, NumberFormat] = {form.name: form for form in _plain()}
"""All formats known by name; `number_format` also reads names with a group size."""


def number_format(name: str, where: str = "number format") -> NumberFormat:
    """A format by name.

    Raises:
        UsageError: no such format.
    """
    found = FORMATS.get(name)
    if found is not None:
        return found
    raise UsageError(
        f"number format {name!r} is unknown",
        where=where,
        remedy=f"Use one of {', '.join(FORMATS)}.",
    )
