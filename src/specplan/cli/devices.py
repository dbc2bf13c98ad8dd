"""`specplan devices`: the hardware that can be named in a problem file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json, print_table

if TYPE_CHECKING:
    from specplan.cost_models.devices.device import Device


def devices(json: JsonOption = False) -> None:
    """List the devices known by name; `profile device` measures this machine instead."""
    from specplan import api

    found = [_record(device) for device in api.list_devices()]
    if json:
        print_json({"devices": found})
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
            for record in found
        ],
    )


def _record(device: Device) -> dict[str, Any]:
    """The data-sheet figures of a device: bytes, bytes per second, operations per second."""
    figures = ("memory_bytes", "memory_bandwidth", "peak_flops", "sources")
    return {"name": device.name, "kind": device.kind} | {
        figure: getattr(device, figure) for figure in figures
    }
