"""Builds NAME.engine of each round in this folder with the Python package `tensorrt`.

`build.sh` calls it where there is no trtexec. It stands alone: the folder that it lies in holds
sources.json, the models and their weights. torch-tensorrt brings the package along.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent


def main() -> None:
    """Build them one by one."""
    for item in json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))["rounds"]:
        build(item["name"], item["slots"])


def build(name: str, slots: list[int]) -> None:
    """One engine: number types as the model has them, a profile for the slots attended to.

    Args:
        name: of the round.
        slots: least, usual and most slots.

    Raises:
        SystemExit: TensorRT does not take the model; with its reasons.
    """
    import tensorrt

    logger: Any = tensorrt.Logger(tensorrt.Logger.WARNING)
    builder: Any = tensorrt.Builder(logger)
    typed = 1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network: Any = builder.create_network(typed)
    parser: Any = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(FOLDER / f"{name}.onnx")):  # finds the weights beside it
        errors = [str(parser.get_error(place)) for place in range(parser.num_errors)]
        raise SystemExit("\n".join([f"TensorRT does not take {name}:", *errors]))
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    profile.set_shape("slots", *((count,) for count in slots))
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise SystemExit(f"TensorRT builds no engine of {name}; its log says why")
    (FOLDER / f"{name}.engine").write_bytes(bytes(engine))


if __name__ == "__main__":
    main()
