"""Random edits of plan text, line by line."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from tests.ir.plans_on_disk import NAMES, text_of

TOKEN = re.compile(r'%\w+|@\w+|"[^"]*"|-?\d+(?:\.\d+)?(?:e-?\d+)?|[\w.]+|\S')
WORDS = sorted({word for name in NAMES for word in TOKEN.findall(text_of(name))})
NUMBERS = ("0", "1", "-1", "2", "3", "64", "2048", "100000", "9999999999", "0.5", "1e300")
LINES = sorted({line for name in NAMES for line in text_of(name).splitlines(keepends=True)})
Edit = Callable[[list[str], random.Random], None]


def delete(lines: list[str], chance: random.Random) -> None:
    del lines[chance.randrange(len(lines))]


def duplicate(lines: list[str], chance: random.Random) -> None:
    at = chance.randrange(len(lines))
    lines.insert(chance.randrange(len(lines)), lines[at])


def swap(lines: list[str], chance: random.Random) -> None:
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]


def borrow(lines: list[str], chance: random.Random) -> None:
    lines.insert(chance.randrange(len(lines)), chance.choice(LINES))


def change_word(lines: list[str], chance: random.Random) -> None:
    """Another word of the same kind: a number, a name, a state, or any other."""
    at = chance.randrange(len(lines))
    words = list(TOKEN.finditer(lines[at]))
    if not words:
        return
    old = chance.choice(words)
    alike = [word for word in WORDS if word[0] == old[0][0]]
    pool = NUMBERS if old[0][-1].isdigit() and old[0][0] not in "%@" else (*alike, *WORDS[:3])
    if chance.random() < 0.1:
        pool = WORDS
    lines[at] = lines[at][: old.start()] + chance.choice(pool) + lines[at][old.end() :]


def change_name(lines: list[str], chance: random.Random) -> None:
    """Another value of the same plan."""
    values = re.findall(r"%\w+", "".join(lines))
    at = chance.randrange(len(lines))
    names = list(re.finditer(r"%\w+", lines[at]))
    if names and values:
        old = chance.choice(names)
        lines[at] = lines[at][: old.start()] + chance.choice(values) + lines[at][old.end() :]


def add_attribute(lines: list[str], chance: random.Random) -> None:
    attributes = re.findall(r" \w+=\S+", "".join(LINES))
    at = chance.randrange(len(lines))
    lines[at] = lines[at].rstrip("\n") + chance.choice(attributes) + "\n"


EDITS: tuple[Edit, ...] = (
    delete, duplicate, swap, borrow, change_word, change_word, change_name, change_name,
    add_attribute,
)  # fmt: skip


def edited(lines: list[str], chance: random.Random, most: int = 4) -> str:
    """The lines after one edit or several."""
    for _ in range(chance.randint(1, most)):
        chance.choice(EDITS)(lines, chance)
    return "".join(lines)
