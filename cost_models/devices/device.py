"""The interface of devices: the seconds of a forward pass, an op and a round's glue."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Literal, Protocol

from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import UsageError
from specplan.ir.files import read_text, stems

TABLES = "silicon:"
"""Begins the name of a device whose kernels were measured by others; see `silicon/`."""


class UnpricedError(UsageError):
    """A device has no price for what was asked; a candidate that needs it is refused."""


class Device(Protocol):
    """Hardware and the time that it takes for given work. All times are seconds."""

    @property
    def name(self) -> str:
        """How the user calls it."""
        ...

    @property
    def kind(self) -> Literal["analytic", "measured", "tables"]:
        """Computed from data-sheet figures, measured, or both: others' tables of kernels."""
        ...

    @property
    def memory_bytes(self) -> float:
        """Memory for weights, caches and workspace, bytes."""
        ...

    @property
    def shared_error(self) -> float:
        """The part of its intervals that falls on all its times alike, a relative half width.

        Where one time is so much too long, so is every other: their ratio is not concerned.
        """
        ...

    @property
    def lane_overlap(self) -> float:
        """Of lanes that run side by side, the part of the shorter ones that the longest hides.

        From 0, where two passes share all that the device has, to 1, where it has room for both.
        """
        ...

    @property
    def skips_dead(self) -> bool:
        """Whether a round leaves dead nodes out there if its lookup has no match."""
        ...

    def forward_seconds(
        self,
        shape: ModelShape,
        batch: int,
        tokens: int,
        context: float,
        logit_rows: int | None = None,
        layers: tuple[int, int] | None = None,
        skips: Skips = NO_SKIPS,
    ) -> Seconds:
        """One forward pass.

        Args:
            shape: the model.
            batch: sequences.
            tokens: query tokens per sequence.
            context: tokens in the cache per sequence before this pass.
            logit_rows: rows per sequence that need logits; default all tokens.
            layers: half-open span of layers; default all.
            skips: blocks that are left out.

        Raises:
            UnpricedError: this device cannot say; the message says how to mend it.
        """
        ...

    def prefill_seconds(
        self, shape: ModelShape, batch: int, tokens: int, cached: int = 0
    ) -> Seconds:
        """A prompt of `tokens` per sequence, with logits of the last one only.

        The first `cached` tokens, fewer than all, are in the cache already: they are attended to
        and not computed.

        Raises:
            UnpricedError: this device cannot say.
        """
        ...

    def op_seconds(self, op_name: str, batch: int, width: int, moved: float = 0.0) -> Seconds:
        """One op that is no forward, over `width` nodes per sequence.

        Args:
            op_name: an op of the plan language, or `op:variant` for a rule or a way of
                drawing; a device without the variant answers for the op.
            batch: sequences.
            width: nodes that the op works on, per sequence.
            moved: bytes that it reads and writes, of all sequences, where it moves much; a device
                that was measured knows what that takes.

        Raises:
            UnpricedError: this device cannot say.
        """
        ...

    def read_seconds(self, link: str, moved: float) -> Seconds:
        """Bytes read into its memory, each by itself, as layers of a `Placement` are.

        Args:
            link: `disk` or `host`.
            moved: bytes of one layer.

        Raises:
            UnpricedError: this device cannot say.
        """
        ...

    def basis(self, shapes: Iterable[ModelShape]) -> str:
        """What times of these models' forwards rest on, in words that go on from "time"."""
        ...

    def round_seconds(self, batch: int) -> Seconds:
        """Seconds of a round outside of its ops: the host's loop, hand-over of results.

        Raises:
            UnpricedError: this device cannot say.
        """
        ...


def list_devices() -> tuple[str, ...]:
    """Names of the device files that ship with specplan, sorted."""
    return stems(resources.files("specplan.cost_models.devices") / "sheets")


def load_device(name_or_path: Path | str, backend: str = "") -> Device:
    """A shipped device by name, or a device file: YAML (data sheet) or JSON (measured).

    `8x` before the name or path of a data sheet means eight of them sharing every layer (tensor
    parallelism); `@` and a name behind it the stack that launches the kernels, where there is none
    that of the backend: `8xh100-sxm@vllm`. `silicon:` and a system and stack of the package
    `aiconfigurator-core` means the kernel tables there: `8xsilicon:h100_sxm/vllm`.

    Raises:
        MissingCapabilityError: the package with the tables is not installed.
        UsageError: no such device, stack, table or file, or the file is not a device.
    """
    from specplan.cost_models.devices.roofline import AnalyticDevice
    from specplan.cost_models.devices.stack import load_stack, stack_of

    text = device_name(str(name_or_path))
    if text.endswith(".json"):
        from specplan.cost_models.devices.measured.device import MeasuredDevice
        from specplan.cost_models.devices.measured.table import MeasuredTable

        return MeasuredDevice(MeasuredTable.load(Path(name_or_path)))
    count, name, stack = _parts(text)
    if name.startswith(TABLES):
        return _load_tables(text, count, name, stack)
    if name in list_devices():
        sheet = resources.files("specplan.cost_models.devices") / "sheets" / f"{name}.yaml"
        data = sheet.read_text(encoding="utf-8")
    elif Path(name).suffix in (".yaml", ".yml"):
        data = read_text(Path(name), "device file")
    else:
        raise UsageError(f'unknown device "{text}"', remedy=device_remedy(text))
    device = AnalyticDevice.from_yaml(
        data, where=name, stack=load_stack(stack or stack_of(backend))
    )
    device = device.times(count)
    return replace(device, name=f"{device.name}@{stack}") if stack else device


def device_count(text: str) -> int:
    """How many devices a name stands for: 8 of `8xh100-sxm@vllm`, 1 without a number."""
    return _parts(device_name(text))[0]


def one_device(text: str) -> str:
    """The name without its number of devices: `h100-sxm@vllm` of `8xh100-sxm@vllm`."""
    _, name, stack = _parts(text)
    return f"{name}@{stack}" if stack else name


def is_device_name(text: str) -> bool:
    """Whether `load_device` looks this up among what it knows, rather than as a file."""
    _, name, _ = _parts(device_name(text))
    return name in list_devices() or name.startswith(TABLES)


def device_name(text: str) -> str:
    """The name of a device as `list_devices` has it, with the `8x` and `@stack` around it.

    Upper case and missing dashes do not matter (`8xH200`, `RTX4090`), and the beginning of a name
    is enough where no other device begins so (`mi250x`). Any other text comes back unchanged.
    """
    names = similar_devices(text)
    _, own, _ = _parts(text)
    exact = [name for name in names if _letters(_parts(name)[1]) == _letters(own)]
    longer = [name for name in names if _words(_parts(name)[1])[: len(_words(own))] == _words(own)]
    matches = exact or (longer if len(names) == 1 else [])
    return matches[0] if len(matches) == 1 else text


def similar_devices(text: str) -> tuple[str, ...]:
    """What a name that is not exact may stand for: forms of the same GPU, never another GPU.

    `8xh100` may be `8xh100-pcie` or `8xh100-sxm`; `a100-80gb` any A100 with 80 GB.
    """
    _, own, stack = _parts(text)
    count = text[: text.index(own)] if own in text else ""
    words = {*_words(own)}
    same = [name for name in list_devices() if _letters(name) == _letters(own)]
    part = [name for name in list_devices() if words and words <= {*_words(name)}]
    model = next((word for word in _words(own) if any(map(str.isdigit, word))), None)
    kin = [name for name in list_devices() if model in _words(name)]
    return tuple(
        f"{count.lower()}{name}{f'@{stack}' if stack else ''}" for name in same or part or kin
    )


def device_remedy(text: str) -> str:
    """What to write in place of an unknown device: forms of the same GPU, or all that is known."""
    names = [f'"{name}"' for name in similar_devices(text)]
    if names:
        several = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
        return f"Did you mean {several}?"
    return f"Known: {', '.join(list_devices())}; or name a .yaml or .json file of a device."


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s_-]", name.lower()) if word]


def _load_tables(text: str, count: int, name: str, stack: str) -> Device:
    from specplan.cost_models.devices.roofline import AnalyticDevice
    from specplan.cost_models.devices.silicon.device import load_silicon

    def fallback(sheet: str) -> AnalyticDevice:
        device = load_device(sheet)
        assert isinstance(device, AnalyticDevice)
        return device

    if stack:
        raise UsageError(
            "kernel tables were measured under their own stack",
            where=f"device {text}",
            remedy=f"Leave @{stack} out, or name other tables: {TABLES}system/stack.",
        )
    return load_silicon(name.removeprefix(TABLES), count, fallback)


def _parts(text: str) -> tuple[int, str, str]:
    """Number of devices, name or path, and stack (empty where not given).

    Raises:
        UsageError: the number is 0.
    """
    match = re.fullmatch(r"(?:(\d+)[xX])?(.+?)(?:@([\w.-]+))?", text)
    if match is None or "/" in (match[3] or "") or Path(text).exists():
        return 1, text, ""
    count = int(match[1] or 1)
    if count < 1:
        raise UsageError(
            "the number of devices must be at least 1",
            where=f"device {text}",
            remedy=f"Write 8x{match[2]} for eight of them, or {match[2]} for one.",
        )
    return count, match[2], match[3] or ""
