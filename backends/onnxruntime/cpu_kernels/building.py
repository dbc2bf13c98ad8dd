"""The library of custom ops, built from `library.cpp` on this machine when it is first needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from specplan.backends.machine import features

_SOURCES = sorted([*Path(__file__).parent.glob("*.cpp"), *Path(__file__).parent.glob("*.h")])
_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-fvisibility=hidden", "-w")


@cache
def kernels() -> Path | None:
    """The library; None without a C++ compiler that builds it, or without AVX-512 VNNI.

    The user's cache folder keeps it, under a name that depends on source, compiler and processor.
    `CXX` names another compiler than g++.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None or "avx512_vnni" not in features():
        return None
    built = _folder() / f"kernels-{digest()}.so"
    return built if built.is_file() or _build(compiler, built) else None


@cache
def digest() -> str:
    """Of what the library depends on."""
    texts = (path.read_text() for path in _SOURCES)
    parts = (*texts, os.environ.get("CXX", ""), *_FLAGS, *features())
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _build(compiler: str, to: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        made = Path(folder) / to.name
        sources = [str(path) for path in _SOURCES if path.suffix == ".cpp"]
        command = [compiler, *_FLAGS, *sources, "-o", str(made)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return False
        made.replace(to)  # another process may have built the same
    return True


def _folder() -> Path:
    """A folder of this user's that can be written to."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "specplan"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="specplan-"))
