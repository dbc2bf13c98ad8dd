"""Limits of plans and outputs, and quantities as users write them: `20ms`, `80GB`, `80GiB`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from specplan.cost_models.devices.device import device_name
from specplan.ir.errors import UsageError
from specplan.ir.files import name_of, read_text

SECONDS_PER_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
BYTES_PER_UNIT = {"B": 1.0} | {
    f"{prefix}{suffix}": float(base**power)
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k" if base == 1000 else "K", "M", "G", "T"), start=1)
}
_QUANTITY = re.compile(r"([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([a-zA-Zµ]*)")
_PATTERN = r"^[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*[a-zA-Zµ]*$"


class QuantityError(ValueError):
    """Not a quantity, or one that was hardly meant.

    Attributes:
        what: what is wrong with it.
        remedy: how to write it.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what}. {remedy}")


def _device(text: str) -> str:
    try:
        return device_name(text)
    except UsageError as error:  # pydantic adds the key to errors of values
        raise QuantityError(error.what, error.remedy) from error


Device = Annotated[str, AfterValidator(_device)]
"""A name of `specplan devices` as it stands there, or the path of a file."""


def quantity(value: Any, units: Mapping[str, float], example: str) -> Any:
    """A number, or a text with one of these units in SI units; other types come back unchanged.

    Args:
        value: what was written.
        units: the factor of each unit; without regard to case where that is not ambiguous.
        example: a quantity of this kind, for messages.

    Raises:
        QuantityError: the text is no number with one of the units.
    """
    if not isinstance(value, str):
        return value
    match = _QUANTITY.fullmatch(value.strip())
    unit = "" if match is None else match[2].replace("µ", "u")
    factors = {name.lower(): factor for name, factor in units.items()}
    try:
        if match is None or (unit and unit.lower() not in factors):
            raise ValueError
        return float(match[1]) * (factors[unit.lower()] if unit else 1.0)
    except ValueError:
        raise QuantityError(
            f'must be a number with a unit, got "{value}"',
            f"Write a quantity such as {example}; units: {', '.join(units)}.",
        ) from None


def _duration(limit: float | None, per: str) -> Callable[[Any], Any]:
    """Reads seconds; a bare number above `limit` is refused, since milliseconds were meant."""

    def read(value: Any) -> Any:
        bare = value
        if isinstance(value, str) and re.search("[a-zA-Zµ]", value) is None:
            bare = quantity(value, SECONDS_PER_UNIT, "20ms")
        if limit is not None and isinstance(bare, int | float) and bare > limit:
            raise QuantityError(
                f"{bare:g} without a unit is {bare:g} seconds{per}",
                f'Did you mean {bare:g}ms? Write "{bare:g}s" for {bare:g} seconds.',
            )
        return quantity(value, SECONDS_PER_UNIT, "20ms")

    return read


def _written(limit: float | None) -> Callable[[float], float | str]:
    """Writes seconds as the schema reads them again: with a unit where a bare number is refused."""
    return lambda value: value if limit is None or value <= limit else f"{value!r}s"


def _json_schema(example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": _PATTERN, "examples": [example]},
            ]
        }
    )


_POSITIVE = Field(strict=True, gt=0, allow_inf_nan=False)
_PER_TOKEN, _FIRST_TOKEN = 1.0, 60.0
"""Seconds above which a bare number was hardly meant: of a token, of the first token."""

SecondsPerToken = Annotated[
    float,
    _POSITIVE,
    BeforeValidator(_duration(_PER_TOKEN, " per token")),
    PlainSerializer(_written(_PER_TOKEN), when_used="json"),
    _json_schema("20ms"),
]
SecondsToFirstToken = Annotated[
    float,
    _POSITIVE,
    BeforeValidator(_duration(_FIRST_TOKEN, " to the first token")),
    PlainSerializer(_written(_FIRST_TOKEN), when_used="json"),
    _json_schema("500ms"),
]
Duration = Annotated[float, _POSITIVE, BeforeValidator(_duration(None, "")), _json_schema("30s")]
Size = Annotated[
    float,
    _POSITIVE,
    BeforeValidator(lambda value: quantity(value, BYTES_PER_UNIT, "80GB")),
    _json_schema("80GB"),
]


class Strict(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


OUTPUTS_DIFFER, DIVERGENCE, TEXT_LOSS, COMMAND = (
    "outputs_differ", "divergence", "held_out_loss", "command",
)  # fmt: skip
TOTAL_VARIATION, KL = "total_variation", "kl"
_Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class Quality(Strict):
    """How much worse than the target's own an output may be; see docs/quality.md."""

    measure: Literal["outputs_differ", "divergence", "held_out_loss", "command"] = Field(
        description="outputs_differ: share of requests whose output is not the target's; "
        "divergence: of the law of a token from the target's, in the mean of an output; "
        "held_out_loss: nats per token by which held-out text becomes less likely; command: by how "
        "much a command of yours scores outputs lower than the target's."
    )
    at_most: _Positive = Field(description="The limit, in the unit of the measure.")
    risk: Annotated[float, Field(strict=True, gt=0, le=0.5)] = Field(
        default=0.05, description="Probability that the stated bound is wrong."
    )
    divergence: Literal["total_variation", "kl"] = Field(
        default="total_variation",
        description="Which divergence: total_variation (0 to 1) or kl (nats, of the plan's law "
        "from the target's).",
    )
    prompts: Path | None = Field(
        default=None,
        description="JSON Lines of prompts to calibrate and report on, as workload.prompts; left "
        "out, the bench split of those. One half calibrates and the other reports, or the splits "
        "calibrate and report.",
    )
    command: tuple[str, ...] = Field(
        default=(),
        description="Program and arguments of the measure command. It reads an object with id, "
        "prompt and output on its input; exit code 0 scores 1, another 0, and a last line that is "
        "a number from 0 to 1 is the score.",
    )
    seconds: Duration = Field(default=10.0, description="Time after which the command is ended.")
    memory: Size = Field(default=1e9, description="Memory that the command may take, in bytes.")


class Followed(Strict):
    """What every output must follow; nothing by default."""

    json_schema: Path | None = Field(
        default=None,
        description="File of a JSON schema that every output follows; relative to the problem "
        "file. A prompt may have its own.",
    )
    grammar: Path | None = Field(
        default=None,
        description="File of a grammar in Lark's notation that every output follows, instead of "
        "json_schema; relative to the problem file. A prompt may have its own.",
    )

    @property
    def followed(self) -> tuple[str, str] | None:
        """Kind and text of what outputs follow."""
        kinds = {"json_schema": self.json_schema, "lark": self.grammar}
        for kind, path in kinds.items():
            if path is not None:
                return kind, read_text(path, "grammar")
        return None

    @property
    def followed_digest(self) -> str:
        """A name for it in keys; "" where outputs follow nothing."""
        return "" if self.followed is None else name_of("\n".join(self.followed))


class Limits(Strict):
    """What a plan must not exceed; a limit left out does not bind."""

    memory: Size | None = Field(
        default=None,
        description="Memory for weights, caches and workspace: in bytes, or with a unit (80GB, "
        "80GiB).",
    )
    tpot: SecondsPerToken | None = Field(
        default=None,
        description="Mean time per output token of one request: in seconds, or with a unit (20ms).",
    )
    ttft: SecondsToFirstToken | None = Field(
        default=None,
        description="Time to the first token of a request: in seconds, or with a unit (500ms).",
    )
    request_latency: Duration | None = Field(
        default=None,
        description="Time of one request, prompt and output: in seconds, or with a unit (30s).",
    )
    quality: Quality | None = Field(
        default=None,
        description="What the output may lose; left out, only plans that keep the target's law "
        "are chosen unless methods names others.",
    )
