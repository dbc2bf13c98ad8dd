"""`specplan devices`: the hardware that can be named in a problem file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_record, print_table

if TYPE_CHECKING:
    from specplan.cost_models.devices.device import Device


def devices(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this device in full, such as 8xh100-sxm.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the known devices, or show one; `profile device` measures this machine."""
    from specplan import api

    if name is not None:
        _show(name, json=json)
        return
    records = [_record(device) for device in api.list_devices()]
    if json:
        print_json({"devices": records})
        return
    print_table(
        ("device", ">memory [GB]", ">bandwidth [GB/s]", ">peak [Tflop/s]"),
        [
            (
                record["name"],
                f"{record['memory_bytes'] / 1e9:.0f}",
                f"{record['memory_bandwidth'] / 1e9:.0f}",
                ", ".join(
                    f"{dtype} {flops / 1e12:.4g}" for dtype, flops in record["peak_flops"].items()
                ),
            )
            for record in records
        ],
    )


def _show(name: str, *, json: bool) -> None:
    """All figures of a device with their sources, in SI units."""
    from dataclasses import asdict

    from specplan.cost_models.devices.device import load_device
    from specplan.cost_models.devices.roofline import AnalyticDevice

    device = load_device(name)
    record: dict[str, Any] = {"name": device.name, "kind": device.kind}
    if isinstance(device, AnalyticDevice):
        record |= asdict(device)
    else:
        record |= {"memory_bytes": device.memory_bytes, "shared_error": device.shared_error}
    if json:
        print_json({"devices": [record]})
        return
    for sources in (record.pop("sources", {}), record.get("stack", {}).pop("sources", {})):
        for figure, source in sources.items():
            owner = record if figure in record else record["stack"]
            owner[figure] = f"{_figure(owner[figure])}  ({source})"
    print_record(record)


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.4g}" for name, number in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _record(device: Device) -> dict[str, Any]:
    """The data-sheet figures of a device: bytes, bytes per second, operations per second."""
    figures = ("memory_bytes", "memory_bandwidth", "peak_flops", "sources")
    return {"name": device.name, "kind": device.kind} | {
        figure: getattr(device, figure) for figure in figures
    }
