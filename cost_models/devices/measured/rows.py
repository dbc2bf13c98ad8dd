"""Rows of a measured device: what was run, what it took, pass by pass."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any, Self

from specplan.cost_models.devices.measured.spread import bounds, own_half_width
from specplan.cost_models.intervals import Seconds
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Timing:
    """What the runs of one measurement took.

    Attributes:
        seconds: median of the passes' centres.
        low: lower quartile of single runs, seconds, mean over passes.
        high: upper quartile of single runs, seconds, mean over passes.
        runs: in all passes.
        passes: centre of each pass over the grid, seconds, in order of time.
    """

    seconds: float
    low: float
    high: float
    runs: int
    passes: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.seconds <= self.high or self.runs < 1:
            raise UsageError(
                f"a measurement needs 0 <= low <= seconds <= high and runs >= 1, got {self!r}"
            )

    def own(self, scatter: float) -> float:
        """Half width of the 90 % interval of `seconds`, without drift of the machine; seconds.

        Args:
            scatter: relative standard deviation of a pass.
        """
        quartiles = self.low, self.high
        return own_half_width(self.seconds, len(self.passes), quartiles, self.runs, scatter)

    def time(self, drift: float, scatter: float) -> Seconds:
        """As a time with its 90 % interval; see `specplan.cost_models.devices.measured.spread`.

        Args:
            drift: relative half width of the machine's drift.
            scatter: relative standard deviation of a pass.
        """
        return Seconds(self.seconds, *bounds(self.seconds, self.own(scatter), drift))

    def joined(self, later: Self) -> Self:
        """This row and a later pass of the same key as one."""
        passes = (*(self.passes or (self.seconds,)), *(later.passes or (later.seconds,)))
        before = len(self.passes or (self.seconds,)) / len(passes)
        seconds = median(passes)
        return replace(
            self,
            seconds=seconds,
            low=min(seconds, before * self.low + (1.0 - before) * later.low),
            high=max(seconds, before * self.high + (1.0 - before) * later.high),
            runs=self.runs + later.runs,
            passes=passes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRow(_Timing):
    """A forward over `tokens` query tokens per sequence.

    Attributes:
        model: digest of the model.
        dtype: number format it ran in.
        batch: sequences.
        tokens: query tokens per sequence.
        context: tokens in the cache per sequence.
        layers: half-open span of layers, None for all.
        logits: whether there are logits, at each of the tokens, or none.
        skip: blocks of the stack that were left out, by name.
    """

    model: str
    dtype: str
    batch: int
    tokens: int
    context: int
    layers: tuple[int, int] | None = None
    logits: bool = True
    skip: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What the row is about."""
        return (
            "forward",
            self.model,
            self.dtype,
            self.batch,
            self.tokens,
            self.context,
            self.layers,
            self.logits,
            self.skip,
        )

    @property
    def whole(self) -> bool:
        """Whether the whole stack ran."""
        return self.layers is None and not self.skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRow(_Timing):
    """A prompt of `tokens` per sequence into an empty cache, logits of the last token."""

    model: str
    dtype: str
    batch: int
    tokens: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("prefill", self.model, self.dtype, self.batch, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow(_Timing):
    """An op that is no forward, over `width` nodes per sequence; `op` may be `op:variant`."""

    op: str
    batch: int
    width: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("op", self.op, self.batch, self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow(_Timing):
    """What a round takes outside of its ops."""

    batch: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("round", self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow(_Timing):
    """A layer of so many bytes, read over a link into the device's memory by itself."""

    link: str
    moved: int

    @property
    def key(self) -> Key:
        """What the row is about."""
        return ("read", self.link, self.moved)


Row = ForwardRow | PrefillRow | OpRow | RoundRow | ReadRow
SECTIONS: dict[str, type[Row]] = {
    "forward": ForwardRow,
    "prefill": PrefillRow,
    "op": OpRow,
    "round": RoundRow,
    "read": ReadRow,
}


def read_row(kind: type[Row], entry: dict[str, Any]) -> Row:
    """A row from its JSON form.

    Raises:
        TypeError: a key is unknown or missing, or not a number where one belongs.
        ValueError: a pair or list is none.
        UsageError: the numbers contradict each other.
    """
    values = dict(entry)
    values["passes"] = tuple(float(seconds) for seconds in values.get("passes", ()))
    if "skip" in values:
        values["skip"] = Skips.read(values["skip"]).words
    if values.get("layers") is not None:
        first, last = values["layers"]
        values["layers"] = (first, last)
    for item in fields(kind):
        value = values.get(item.name)
        if item.type in ("int", "float") and (
            isinstance(value, bool) or not isinstance(value, int | float)
        ):
            raise TypeError(f"{item.name} is {value!r}")
    return kind(**values)
