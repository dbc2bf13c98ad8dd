"""An environment of its own for each engine that installs on a CPU: `.work/engines/NAME`.

`python -m tests.engines.environments [NAME...]` installs those that are not there yet. PIP_FLAGS
are further options for pip, as in the Makefile.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / ".work/engines"
GPU_ONLY = (
    "torch", "flashinfer", "tilelang", "nvidia", "cuda", "pynv", "nvtx", "sgl", "fastsafetensors",
    "instanttensor", "quack", "tokenspeed", "humming", "numba", "ray", "xformers", "cupy", "deep",
    "fa3", "flash", "triton", "helion", "b12x", "av", "decord", "cutlass", "mooncake",
)  # fmt: skip
"""What the packages that an engine for GPUs requires begin with, where a parser does without."""


@dataclass(frozen=True)
class Environment:
    """What is installed for an engine.

    Attributes:
        packages: with all that they require.
        alone: without, and then what they require but packages for GPUs.
        source: a source distribution whose llama.cpp is built, or "".
    """

    packages: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    source: str = ""


ENVIRONMENTS: Mapping[str, Environment] = {
    "openvino_genai": Environment(("torch", "openvino-genai==2026.4.1.0", "optimum-intel==2.2.0")),
    "onnxruntime_genai": Environment(
        ("torch", "onnxruntime-genai==0.18.0", "transformers", "onnx", "onnx-ir")
    ),
    "llama_cpp": Environment(
        ("torch", "transformers", "gguf", "sentencepiece", "scikit-build-core", "cmake",
         "ninja"),
        source="llama-cpp-python==0.3.36",
    ),
    "vllm": Environment(("torch",), ("vllm==0.33.0",)),
    "sglang": Environment(("torch",), ("sglang==0.5.23",)),
    "ray_serve": Environment(
        ("torch", "ray[serve]==2.60.0", "async-timeout", "pyarrow"), ("vllm==0.29.0",)
    ),
    "speculators": Environment(("torch",), ("speculators==0.9.0",)),
    "dynamo": Environment(
        ("torch",), ("vllm==0.31.0", "ai-dynamo-runtime==1.6.1", "ai-dynamo==1.6.1")
    ),
}  # fmt: skip


def python_of(name: str) -> Path:
    """The interpreter of an engine's environment."""
    return FOLDER / name / "bin/python"


def installed(name: str) -> bool:
    """Whether the environment is there, whole."""
    return (FOLDER / name / "installed").exists()


def install(name: str) -> None:
    """Make the environment of an engine.

    Raises:
        subprocess.CalledProcessError: pip or a build failed.
    """
    folder, wanted = FOLDER / name, ENVIRONMENTS[name]
    if not python_of(name).exists():
        venv.create(folder, with_pip=True)
    _pip(name, *wanted.packages)
    for package in wanted.alone:
        _pip(name, "--no-deps", package)
        _pip(name, *_required(name, package.partition("==")[0]))
    if name == "openvino_genai":  # the index has it for another torch
        subprocess.run(
            [python_of(name), "-m", "pip", "uninstall", "-qy", "torchvision"], check=True
        )
    if wanted.source:
        _build_llama_cpp(name, wanted.source)
    (folder / "installed").touch()


def _pip(name: str, *arguments: str) -> None:
    flags = os.environ.get("PIP_FLAGS", "").split()
    command = [python_of(name), "-m", "pip", "install", "--quiet", "--no-compile", *flags]
    subprocess.run([*command, *arguments], check=True)


def _required(name: str, package: str) -> list[str]:
    """What a package requires and a CPU can have."""
    code = (
        f"from importlib.metadata import requires; print(*requires({package!r}) or (), sep='\\n')"
    )
    lines = subprocess.run(
        [python_of(name), "-c", code], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [
        line
        for line in lines
        if "extra ==" not in line and not re.match("|".join(GPU_ONLY), line.lower())
    ]


def _build_llama_cpp(name: str, source: str) -> None:
    """`build/bin/llama-server` of the llama.cpp in a source distribution; takes a while."""
    folder = FOLDER / name
    binaries, sources = folder / "bin", folder / "src"
    subprocess.run(
        [python_of(name), "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation",
         "--no-binary", ":all:", "--dest", sources, source],
        check=True,
        env={**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"},
    )  # fmt: skip
    (archive,) = sources.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(sources, filter="data")
    (tree,) = sources.glob("*/vendor/llama.cpp")
    off = ("LLAMA_CURL", "LLAMA_OPENSSL", "BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS",
           "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_WEBUI", "GGML_NATIVE")  # fmt: skip
    options = ["-DCMAKE_BUILD_TYPE=Release", *(f"-D{option}=OFF" for option in off)]
    cmake, ninja = binaries / "cmake", f"-DCMAKE_MAKE_PROGRAM={binaries / 'ninja'}"
    build = folder / "build"
    subprocess.run([cmake, "-G", "Ninja", ninja, "-S", tree, "-B", build, *options], check=True)
    subprocess.run([cmake, "--build", build, "--target", "llama-server"], check=True)


def main() -> int:
    """Install the engines that are named, or all; go on with the next where one fails."""
    failed = []
    for name in sys.argv[1:] or ENVIRONMENTS:
        if installed(name):
            continue
        print(f"Installing {name} into {FOLDER / name}", flush=True)
        try:
            install(name)
        except subprocess.CalledProcessError as error:
            failed.append(f"{name}: {error}")
    print("\n".join(failed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
