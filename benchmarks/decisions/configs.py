"""Which config.json of a folder is that of a named target, if any."""

from __future__ import annotations

import re
from pathlib import Path

from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import SpecplanError

_TUNING = {"meta", "chat", "instruct", "it", "base", "hf", "preview", "thinking", "coder", "bf16"}
"""Words that tell how weights were trained, and leave the shape alone."""
_SIZE = re.compile(r"\d+x\d+b|a?\d+(\.\d+)?b|\d+e")


def read_shapes(folder: Path | None) -> dict[str, ModelShape]:
    """Shapes of all priced configs of a folder (`<name>/config.json`), by the folder's name."""
    shapes = {}
    for file in sorted(folder.glob("*/config.json")) if folder else ():
        try:
            shapes[file.parent.name] = ModelShape.from_folder(file.parent)
        except SpecplanError:  # an architecture that is not priced: as if it were not there
            continue
    return shapes


def shape_of(target: str, shapes: dict[str, ModelShape]) -> ModelShape | None:
    """The shape whose name says the same sizes and the same family, or None.

    All sizes must be equal (`30b`, `a3b`, `16e`), and every other word but those of tuning.
    Versions may differ behind the point where sizes are named (Llama 3.3 70B is Llama 3.1 70B);
    then the nearest version is taken. Where no size is named, versions must be equal.
    """
    sizes, words, version = _read(target)
    fits = []
    for name, shape in shapes.items():
        its_sizes, its_words, its_version = _read(name)
        if (its_sizes, its_words) != (sizes, words) or its_version[:1] != version[:1]:
            continue
        if its_version == version or sizes:
            difference = abs(_minor(its_version) - _minor(version))
            fits.append((difference, name, shape))
    return min(fits, key=lambda fit: fit[:2])[2] if fits else None


def _read(name: str) -> tuple[frozenset[str], frozenset[str], tuple[int, ...]]:
    """Sizes, other words, and the version: the first number in or behind a word."""
    name = name.lower().split("--")[-1].split("/")[-1]
    sizes, words = set(), set()
    version: tuple[int, ...] = ()
    for part in filter(None, re.split(r"[-_\s]+", name)):
        if _SIZE.fullmatch(part):
            sizes.add(part)
            continue
        if part in _TUNING or re.fullmatch(r"\d{4}", part):  # a date
            continue
        word = part.rstrip("0123456789.")
        numbers = part[len(word) :].strip(".")
        if numbers and not version and not part.startswith("fp"):
            version = tuple(map(int, numbers.split(".")))
        elif numbers:
            word = part
        if word and word != "v":
            words.add(word)
    return frozenset(sizes), frozenset(words), version


def _minor(version: tuple[int, ...]) -> float:
    return float(version[1]) if len(version) > 1 else 0.0
