"""The models of a problem, and the number formats that they are read in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from specplan.cost_models.models.model_shape import is_gguf
from specplan.cost_models.models.number_formats import known_format
from specplan.planner.problem.limits import Strict

Format = Annotated[str, AfterValidator(known_format)]
Dtype = Literal["auto", "float64", "float32", "bfloat16", "float16", "Q8_0", "Q4_0"]
Formats = Dtype | dict[str, Dtype]
"""The dtype of all models but heads, or dtypes by role."""


class TargetModel(Strict):
    """The model whose output distribution is kept."""

    path: Path = Field(
        description="Folder with config.json, model.safetensors and tokenizer.json, or, to plan "
        "only, a GGUF file; relative to the problem file, ~ and $HOME are replaced. Or the Hugging "
        "Face id of a model in the local cache."
    )
    dtype: Dtype = Field(
        default="auto",
        description='Number type of the weights; "auto" is the one stored. With Q8_0 or Q4_0 the '
        "matrices are rounded to 8 or 4 bits in blocks of 32, and multiplied by activations in 8 "
        "bits: the rounded model is then the one whose output is kept.",
    )
    weight_format: Format | None = Field(
        default=None,
        description="To plan only: the format of the layers' matrices, as if the model were "
        'quantised so, e.g. "fp8", "int8", "int4", "nf4"; default the stored one.',
    )
    kv_format: Format | None = Field(
        default=None,
        description='To plan only: the format of the KV cache, e.g. "fp8"; default the stored '
        "one, or the dtype.",
    )

    @property
    def formats(self) -> dict[str, str | None]:
        """The number formats that its shape is read in."""
        return self.model_dump(include={"dtype", "weight_format", "kv_format"})

    @property
    def plans_only(self) -> bool:
        """Whether it cannot be run as it is described: a GGUF file, or other number formats."""
        return is_gguf(self.path) or bool(self.weight_format or self.kv_format)


class DraftModel(TargetModel):
    """What may draft for the target.

    A smaller model that shares the target's tokenizer, or a drafter that reads the target's hidden
    states: an EAGLE-3 head or a DFlash block drafter, as a folder with its config.json.
    """

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]*$",
        description="Name of the draft model in plans and profiles: lower-case letters, "
        "digits and underscores.",
    )


class Models(Strict):
    """The models at hand."""

    target: TargetModel = Field(description="The target model.")
    drafts: tuple[DraftModel, ...] = Field(
        default=(),
        description="Draft models and drafters over hidden states that a plan may use; may be "
        "empty.",
    )

    @property
    def by_role(self) -> dict[str, TargetModel]:
        """All of them by their role in plans: `target` and the names of the others."""
        return {"target": self.target, **{draft.name: draft for draft in self.drafts}}


def formats_words(formats: Formats) -> str:
    """`Q8_0`, or `target Q8_0 and draft Q4_0`."""
    if isinstance(formats, str):
        return formats
    return " and ".join(f"{role} {dtype}" for role, dtype in formats.items())
