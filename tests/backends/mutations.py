"""Damage: bytes and JSON values changed, with the sums of a bundle made anew behind them."""

from __future__ import annotations

import json
import random
from pathlib import Path

from specplan.ir.files import sha256_file


def mutated(raw: bytes, draws: random.Random) -> bytes:
    """Bytes flipped, cut off, left out, doubled or made anew; sometimes none of them differs."""
    place = draws.randrange(len(raw)) if raw else 0
    end = min(len(raw), place + draws.choice([1, 1, 2, 8, 64]))
    match draws.randrange(5):
        case 0:
            return raw[:place] + bytes([raw[place] ^ (1 << draws.randrange(8))]) + raw[place + 1 :]
        case 1:
            return raw[:place]
        case 2:
            return raw[:place] + raw[end:]
        case 3:
            return raw[:end] + raw[place:]
        case _:
            return raw[:place] + draws.randbytes(end - place) + raw[end:]


def edited_json(raw: bytes, draws: random.Random) -> bytes:
    """JSON with one value somewhere replaced by one of another kind, or left out."""
    document = json.loads(raw)
    holders = [document]
    for holder_ in holders:
        inner = holder_.values() if isinstance(holder_, dict) else holder_
        holders += [item for item in inner if isinstance(item, dict | list) and item]
    holder = draws.choice([holder_ for holder_ in holders if holder_])
    key = draws.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if draws.random() < 0.2:
        del holder[key]
    else:
        holder[key] = draws.choice([None, -1, 10**30, 0.5, "", "../x", [], {}, [[]], True])
    return json.dumps(document).encode()


def changed(path: Path, raw: bytes, draws: random.Random) -> bytes:
    """What a file holds after some damage, as its kind allows."""
    if path.suffix == ".json" and draws.random() < 0.7 and json.loads(raw):
        return edited_json(raw, draws)
    return mutated(raw, draws)


def sum_anew(folder: Path, path: Path) -> str:
    """The manifest with a file's new sum, and that sum."""
    manifest = folder / "manifest.json"
    index, digest = json.loads(manifest.read_bytes()), sha256_file(path)
    index["files"][path.relative_to(folder).as_posix()] = digest
    manifest.write_text(json.dumps(index))
    return digest
