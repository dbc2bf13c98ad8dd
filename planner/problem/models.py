"""The models of a problem, and the number formats that they are read in."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from specplan.cost_models.models.files.safetensors_headers import stored_tensors
from specplan.cost_models.models.model_shape import ModelShape, is_gguf
from specplan.cost_models.models.number_formats import CACHE_FORMATS, known_format
from specplan.cost_models.placement import Link, place
from specplan.cost_models.vision import with_images
from specplan.planner.problem.limits import Strict

if TYPE_CHECKING:
    from specplan.planner.problem.schema import Workload

Format = Annotated[str, AfterValidator(known_format)]
Dtype = Literal["auto", "float64", "float32", "bfloat16", "float16", "Q8_0", "Q4_0"]
CacheFormat = Literal["float16", "bfloat16", "fp8"]


class NumberFormats(Strict):
    """In which formats a model runs."""

    dtype: Dtype | None = Field(default=None, description="See models.target.dtype.")
    kv_format: CacheFormat | None = Field(default=None, description="See models.target.kv_format.")


Formats = Annotated[
    Dtype | NumberFormats | dict[str, Dtype | NumberFormats], Field(union_mode="left_to_right")
]
"""The formats of all models, or by role; the dtype of heads is that of their target."""


class Placed(Strict):
    """Layers that lie outside of the device's memory, each read once in every pass."""

    link: Link = Field(
        description="What they are read over: disk (the checkpoint's files), or host (the host's "
        "memory, of a device with its own; to plan only)."
    )
    layers: Annotated[int, Field(strict=True, ge=3)] | None = Field(
        default=None, description="How many of the last layers; left out, all of them."
    )
    bandwidth: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Bytes per second that are read; left out, what the device's file says or "
        "`specplan profile device` measures.",
    )


class TargetModel(Strict):
    """The model whose output distribution is kept."""

    path: Path = Field(
        description="Folder with config.json, model.safetensors and tokenizer.json, or a GGUF "
        "file; relative to the problem file, ~ and $HOME are replaced. Or the Hugging Face id of a "
        "model in the local cache."
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
        description="Format of the KV cache; default the stored one, or the dtype. Models run "
        'here with caches in float16, bfloat16 or fp8; others, e.g. "int8", are to plan only.',
    )
    placement: Placed | None = Field(
        default=None,
        description="Where the last layers lie that the device's memory does not hold, as "
        "{link: disk, layers: 12}; left out, all are in memory.",
    )

    def shape(self, name: str | None = None, workload: Workload | None = None) -> ModelShape:
        """Its shape, with its placement, and with the images of a workload's prompts.

        Raises:
            UsageError: see `ModelShape.from_path`, `place`, `with_images`.
            MissingCapabilityError: see `ModelShape.from_path`, `with_images`.
        """
        shape, given = ModelShape.from_path(self.path, name=name, **self.formats), self.placement
        if workload is not None and workload.images:
            shortest = min(workload.lengths, default=None)
            shape = with_images(shape, self.path, workload.images, shortest)
        if given is None:
            return shape
        stored = {} if is_gguf(self.path) else stored_tensors(self.path)
        sizes = {tensor: entry.bytes for tensor, entry in stored.items()}
        placed = place(shape, given.link, given.layers, given.bandwidth, sizes)
        return replace(shape, placement=placed)

    @property
    def streamed(self) -> int:
        """At most how many of its last layers are read from its files in every pass."""
        if self.placement is None or self.placement.link != "disk":
            return 0
        return self.placement.layers or sys.maxsize

    @property
    def formats(self) -> dict[str, str | None]:
        """The number formats that its shape is read in."""
        return self.model_dump(include={"dtype", "weight_format", "kv_format"})

    @property
    def plans_only(self) -> bool:
        """Whether it cannot be run as described: other formats than stored, or host memory."""
        hosted = self.placement is not None and self.placement.link == "host"
        return hosted or bool(self.weight_format) or self.kv_format not in (None, *CACHE_FORMATS)

    @property
    def other_cache(self) -> str | None:
        """The format that its KV cache is stated in, where that is not its own number type."""
        return None if self.kv_format == self.dtype else self.kv_format

    @property
    def format_words(self) -> str:
        """The formats that it runs in: `float32`, or `float32 with caches in float16`."""
        return f"{self.dtype}{_cache_words(self.kv_format)}"


DRAFT_NAME = r"^[a-z][a-z0-9_]*$"
"""What a draft model may be called."""


class DraftModel(TargetModel):
    """What may draft for the target.

    A smaller model that shares the target's tokenizer, or a drafter that reads the target's hidden
    states: an EAGLE-3 head or a DFlash block drafter, as a folder with its config.json.
    """

    name: str = Field(
        pattern=DRAFT_NAME,
        description="Name of the draft model in plans and profiles: lower-case letters, "
        "digits and underscores.",
    )
    tensor_parallel: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None,
        description="Of a draft model beside a target on several devices, how many share each of "
        "its layers, a divisor of them; the others run copies. Left out, all or one, whichever is "
        "faster.",
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
    """`Q8_0`, `caches in float16`, or `target Q8_0 and draft Q4_0`."""
    if isinstance(formats, dict):
        return " and ".join(f"{role} {formats_words(one)}" for role, one in formats.items())
    if isinstance(formats, str):
        return formats
    return f"{formats.dtype or ''}{_cache_words(formats.kv_format)}".removeprefix(" with ")


def _cache_words(form: str | None) -> str:
    return "" if form is None else f" with caches in {form}"
