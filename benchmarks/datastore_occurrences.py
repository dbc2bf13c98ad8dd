"""What `rest` loses by merging at most 16 occurrences of a text's end, on held-out code.

    python benchmarks/datastore_occurrences.py [--megabytes 8] [--texts 40] [--json]

Corpus and texts are files of Python's standard library that share no package: the texts, those of
every eighth package, are what a target is taken to write. At each place of a text the datastore is
asked as a round asks it, with 16, 64, 256 and 1,024 occurrences, and the mean number of tokens of a
round is that of the trees' `nodes` commonest continuations, the bonus token included.
"""

from __future__ import annotations

import argparse
import json
import random
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from reference_problem import ROOT

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.datastores import build_datastore
from specplan.measure.acceptance.source_replay import SourceReplay
from specplan.measure.acceptance.teacher import TracedText
from specplan.runtime.tokenizer import load_tokenizer

OCCURRENCES, NODES = (16, 64, 256, 1024), (8, 16, 32, 64)
PROMPT, OUTPUT = 128, 96
TOKENIZER = ROOT / "examples/reference_models/target"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=8.0)
    parser.add_argument("--texts", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Path(folder), given.megabytes, given.texts)
    print(json.dumps(figures, indent=2) if given.json else words_of(figures))


def measured(folder: Path, megabytes: float, texts: int) -> dict[str, Any]:
    """Mean tokens per round by occurrences and nodes."""
    corpus, others = split(megabytes)
    (folder / "corpus.txt").write_text(corpus)
    counts = build_datastore(folder / "corpus.txt", folder / "store", TOKENIZER)
    vocabulary = json.loads((TOKENIZER / "config.json").read_text())["vocab_size"]
    pieces = [*cut(others, texts)]
    tokens: dict[str, dict[str, float]] = {}
    for most in OCCURRENCES:
        source = replace(DRAFT_SOURCES["datastore"], occurrences=most)
        replay = SourceReplay(source, vocabulary, folder / "store")
        rows = [cast(tuple[tuple[int, ...], ...], replay.trace(piece)) for piece in pieces]
        pools = Pools(source.longest, tuple(rows))
        lengths = {n: np.concatenate(pools.lengths(source.longest, n)) for n in NODES}
        tokens[str(most)] = {str(n): round(1 + float(row.mean()), 4) for n, row in lengths.items()}
    return {
        "date": date.today().isoformat(),
        "corpus_tokens": counts["tokens"],
        "texts": len(pieces),
        "places": sum(len(piece.output) for piece in pieces),
        "tokens_per_round": tokens,
    }


def split(megabytes: float) -> tuple[str, list[str]]:
    """The corpus, and files of packages that it has nothing of."""
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = sorted({path.relative_to(library).parts[0] for path in library.rglob("*.py")})
    left_out = set(packages[::8])
    corpus: list[str] = []
    size, others = 0.0, list[str]()
    for path in sorted(library.rglob("*.py")):
        place = path.relative_to(library).parts
        if place[0] == "site-packages" or "test" in place or "tests" in place:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if place[0] in left_out:
            others.append(text)
        elif size < megabytes * 1e6:
            corpus.append(text)
            size += len(text)
    return "\n".join(corpus), others


def cut(texts: list[str], count: int) -> Iterator[TracedText]:
    """Pieces of texts: a prompt, and what follows it there."""
    tokenizer, dealt = load_tokenizer(TOKENIZER), random.Random(0)
    long = [ids for text in texts if len(ids := tokenizer.encode(text)) > 2 * (PROMPT + OUTPUT)]
    for index in range(count):
        ids = long[index % len(long)]
        start = dealt.randrange(len(ids) - PROMPT - OUTPUT)
        begin, end = ids[start : start + PROMPT], ids[start + PROMPT : start + PROMPT + OUTPUT]
        request = cast(Any, SimpleNamespace(prompt_tokens=tuple(begin)))
        yield TracedText(index, f"text {index}", request, tuple(end), cast(Any, None))


def words_of(figures: dict[str, Any]) -> str:
    """A table: rows by occurrences, columns by nodes."""
    lines = [f"tokens per round on {figures['places']} places, {figures['corpus_tokens']} in store"]
    lines.append("occurrences  " + "".join(f"{n:>5} nodes" for n in NODES))
    for most, row in figures["tokens_per_round"].items():
        lines.append(f"{most:>11}  " + "".join(f"{value:>11.3f}" for value in row.values()))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
