"""An environment of its own for each peer: `.work/peers/NAME`.

`python benchmarks/peer_workers/environments.py [NAME...]` installs those that are not there yet
(`make peers`). PIP_FLAGS are further options for pip, as in the Makefile: the index of torch's
builds for CPUs, say. `transformers` and specplan itself run in the environment of the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / ".work/peers"
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "llama_cpp": ("llama-cpp-python", "gguf", "safetensors"),
    "openvino_genai": ("torch", "openvino-genai", "optimum-intel"),
    "onnxruntime_genai": ("torch", "transformers", "onnxruntime-genai", "onnx", "onnx-ir"),
}
"""What runs a peer and exports models for it; llama.cpp is built here, for this processor."""
UNWANTED = {"openvino_genai": "torchvision"}
"""What comes along in a build for another torch, which then does not import."""


def python_of(name: str) -> Path | None:
    """The interpreter of a peer's environment; None where it is not installed."""
    path = FOLDER / name / "bin/python"
    return path if (FOLDER / name / "installed").exists() else None


def install(name: str) -> None:
    """Make the environment of a peer.

    Raises:
        subprocess.CalledProcessError: pip or a build failed.
    """
    folder = FOLDER / name
    pip = [str(folder / "bin/python"), "-m", "pip"]
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
    flags = os.environ.get("PIP_FLAGS", "").split()
    subprocess.run(
        [*pip, "install", "--quiet", "--no-compile", *flags, *PACKAGES[name]], check=True
    )
    if name in UNWANTED:
        subprocess.run([*pip, "uninstall", "-qy", UNWANTED[name]], check=True)
    (folder / "installed").touch()


def main() -> int:
    """Install the peers that are named, or all; go on with the next where one fails."""
    failed = []
    for name in sys.argv[1:] or PACKAGES:
        if python_of(name) is None:
            print(f"Installing {name} into {FOLDER / name}", flush=True)
            try:
                install(name)
            except subprocess.CalledProcessError as error:
                failed.append(f"{name}: {error}")
    print("\n".join(failed))
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
