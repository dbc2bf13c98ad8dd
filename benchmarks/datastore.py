"""How long a corpus takes to become a datastore, and how long lookups in it take.

    python benchmarks/datastore.py [--megabytes 100] [--folder DIR] [--json]

The corpus is the source of Python's standard library and of the packages installed beside it, as
much as is asked for, repeated only where there is less; the reference tokenizer encodes it. Lookups
are batches of 64 texts cut from the corpus, every second one with its last tokens changed; a time
is that of a batch divided by 64. Trees of 16 and 64 nodes, eight tokens deep, from the 16 places
whose context is most like the text's.

Other programs of a busy machine take time from all of it. So beside what passed, the processor time
of this one is told: of the build, and of every batch in the least disturbed of 20 passes over all
of them (`p50`, `p99` over batches). The exit status is 1 where building takes longer than two
minutes by the smaller of the two, or the median lookup longer than 20 us.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from reference_problem import ROOT

from specplan.datastores import build_datastore
from specplan.measure.machine import hardware_name, versions
from specplan.runtime.sources.datastore import Datastore
from specplan.runtime.sources.source import Wanted

BATCH, BATCHES, TEXT, PASSES = 64, 200, 24, 20
WANTED = {
    "chain of 8": Wanted(1, 16, 1, 8),
    "tree of 16": Wanted(1, 16, 16, 8, 16),
    "tree of 64": Wanted(1, 16, 16, 8, 64),
}
BUILD_SECONDS, LOOKUP_SECONDS = 120.0, 20e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--corpus", type=Path, help="a text, or token ids as .npy")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "examples/reference_models/target")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        figures = measured(given, given.folder or Path(temporary))
    print(json.dumps(figures, indent=2) if given.json else words_of(figures))
    over = complaints(figures)
    if over:
        raise SystemExit("\n".join(over))


def words_of(figures: dict[str, Any]) -> str:
    lines = [
        f"{figures['corpus_bytes'] / 1e6:.0f} MB, {figures['tokens']:,} tokens, "
        f"{figures['shards']} shards, {figures['bytes'] / 1e6:.0f} MB",
        f"built in {figures['build_seconds']:.1f} s, {figures['build_processor_seconds']:.1f} s "
        f"of the processor (limit {BUILD_SECONDS:.0f} s)",
    ]
    for name, times in figures["lookups"].items():
        p50, p99, first = (times[q] * 1e6 for q in ("p50", "p99", "first_p50"))
        lines.append(
            f"{name}: p50 {p50:.1f}, p99 {p99:.1f} us (limit {LOOKUP_SECONDS * 1e6:.0f}), "
            f"as it went {first:.1f} us"
        )
    return "\n".join(lines)


def complaints(figures: dict[str, Any]) -> list[str]:
    """What is over its limit."""
    seconds = min(figures["build_seconds"], figures["build_processor_seconds"])
    over = [f"the build took {seconds:.1f} s"] if seconds > BUILD_SECONDS else []
    slow = {name: each["p50"] for name, each in figures["lookups"].items()}
    return over + [f"{n}: {s * 1e6:.1f} us" for n, s in slow.items() if s > LOOKUP_SECONDS]


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    corpus = given.corpus
    if corpus is None:
        corpus = folder / "corpus.txt"
        write_sources(corpus, int(given.megabytes * 1e6))
    if (folder / "store").exists():
        raise SystemExit(f"{folder / 'store'} is there already: what is built goes into a new one")
    start, worked = time.perf_counter(), time.process_time()
    figures: dict[str, Any] = dict(
        build_datastore(corpus, folder / "store", given.tokenizer, progress=tell)
    )
    figures["build_seconds"] = time.perf_counter() - start
    figures["build_processor_seconds"] = time.process_time() - worked
    figures["corpus_bytes"] = corpus.stat().st_size
    figures["bytes"] = sum(path.stat().st_size for path in (folder / "store").iterdir())
    vocabulary = json.loads((given.tokenizer / "config.json").read_text())["vocab_size"]
    store = Datastore(folder / "store", vocabulary, 16)
    texts = cut(folder / "store" / "tokens.bin", store)
    figures["lookups"] = {
        name: percentiles(store, texts, wanted) for name, wanted in WANTED.items()
    }
    about = {"hardware": hardware_name(), "load": os.getloadavg()[0], "versions": versions()}
    return figures | about | {"date": date.today().isoformat()}


def write_sources(path: Path, size: int) -> None:
    """Python sources that are here, file by file, until there are so many bytes."""
    with path.open("wb") as file:
        while file.tell() < size:
            for source in sources():
                file.write(source.read_bytes()[: size - file.tell()])
                if file.tell() >= size:
                    return


def sources() -> Iterator[Path]:
    """The standard library's, then those of installed packages."""
    library, packages = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
    yield from (p for p in sorted(library.rglob("*.py")) if "site-packages" not in p.parts)
    yield from sorted(packages.rglob("*.py"))


def cut(path: Path, store: Datastore) -> Any:
    """Texts `[batches, 64, 24]`, every second with its last four tokens of another place."""
    tokens = np.memmap(path, dtype=store.packing.dtype, mode="r")
    rng = np.random.default_rng(1)
    ends = rng.integers(TEXT, len(tokens), (2, BATCHES, BATCH))
    texts, others = tokens[ends[..., None] - np.arange(TEXT, 0, -1)].astype(np.int64)
    texts[:, ::2, -4:] = others[:, ::2, -4:]
    return np.minimum(texts, store.packing.vocabulary - 1)


def percentiles(store: Datastore, texts: Any, wanted: Wanted) -> dict[str, float]:
    """Seconds per lookup: `p50`, `p99` of undisturbed batches, and of the first pass as it went."""
    lengths = np.full(BATCH, TEXT)
    worked, took = np.zeros((2, PASSES, len(texts)))
    for turn in range(PASSES):
        for place, batch in enumerate(texts):
            start, before = time.perf_counter(), time.process_time()
            store.lookup(batch, lengths, wanted)
            worked[turn, place] = (time.process_time() - before) / BATCH
            took[turn, place] = (time.perf_counter() - start) / BATCH
    seconds = dict(zip(("p50", "p99"), np.percentile(worked.min(0), [50, 99]), strict=True))
    seconds |= zip(("first_p50", "first_p99"), np.percentile(took[0], [50, 99]), strict=True)
    return {name: float(value) for name, value in seconds.items()}


def tell(description: str, done: int, total: int) -> None:
    print(f"{description}: {done} of {total}", file=sys.stderr)


if __name__ == "__main__":
    main()
