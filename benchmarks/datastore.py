"""How long a corpus takes to become a datastore, and how long lookups in it take.

The corpus is token ids by default: 100 MB of text at four bytes a token, tokens of uneven frequency
(Zipf) among which passages come again. Lookups are batches of 64 texts cut from the corpus, every
second one with its last tokens changed; a time is that of a batch divided by 64. Trees of 16 and 64
nodes, eight tokens deep, from the 16 places whose context is most like the text's.

    python benchmarks/datastore.py [--megabytes 100] [--folder DIR] [--json]
    python benchmarks/datastore.py --corpus text.txt --tokenizer examples/reference_models/target
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from specplan.datastores import build_datastore
from specplan.runtime.sources.datastore import Datastore
from specplan.runtime.sources.source import Wanted

VOCABULARY, TEXT_BYTES = 32_000, 4
BATCH, BATCHES, TEXT = 64, 200, 24
WANTED = {
    "chain of 8": Wanted(1, 16, 1, 8),
    "tree of 16": Wanted(1, 16, 16, 8, 16),
    "tree of 64": Wanted(1, 16, 16, 8, 64),
}
BUILD_SECONDS, LOOKUP_SECONDS = 120.0, 20e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measured(given, given.folder or Path(temporary))
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['tokens']:,} tokens, {found['shards']} shards, {found['bytes'] / 1e6:.0f} MB")
    print(f"built in {found['build_seconds']:.1f} s (limit {BUILD_SECONDS:.0f} s)")
    for name, times in found["lookups"].items():
        p50, p99 = (times[q] * 1e6 for q in ("p50", "p99"))
        print(f"{name}: p50 {p50:.1f} us, p99 {p99:.1f} us (limit {LOOKUP_SECONDS * 1e6:.0f} us)")


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    corpus, tokenizer = given.corpus, given.tokenizer
    if corpus is None:
        corpus, tokenizer = folder / "corpus.npy", folder
        np.save(corpus, made_up(int(given.megabytes * 1e6) // TEXT_BYTES))
        (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY}))
    start = time.perf_counter()
    found: dict[str, Any] = dict(
        build_datastore(corpus, folder / "store", tokenizer, progress=tell)
    )
    found["build_seconds"] = time.perf_counter() - start
    found["bytes"] = sum(path.stat().st_size for path in (folder / "store").iterdir())
    vocabulary = json.loads((Path(tokenizer) / "config.json").read_text())["vocab_size"]
    store = Datastore(folder / "store", vocabulary, 16)
    texts = cut(folder / "store" / "tokens.bin", store)
    found["lookups"] = {name: percentiles(store, texts, wanted) for name, wanted in WANTED.items()}
    return found


def made_up(size: int) -> Any:
    rng = np.random.default_rng(0)
    tokens = (rng.zipf(1.2, size) % VOCABULARY).astype(np.int32)
    for here, there, length in zip(
        rng.integers(0, size - 64, size // 100),
        rng.integers(0, size - 64, size // 100),
        rng.integers(4, 64, size // 100),
        strict=True,
    ):
        tokens[here : here + length] = tokens[there : there + length]
    return tokens


def cut(path: Path, store: Datastore) -> Any:
    """Texts `[batches, 64, 24]`, every second with its last four tokens of another place."""
    tokens = np.memmap(path, dtype=store.packing.dtype, mode="r")
    rng = np.random.default_rng(1)
    ends = rng.integers(TEXT, len(tokens), (2, BATCHES, BATCH))
    texts, others = tokens[ends[..., None] - np.arange(TEXT, 0, -1)].astype(np.int64)
    texts[:, ::2, -4:] = others[:, ::2, -4:]
    return np.minimum(texts, store.packing.vocabulary - 1)


def percentiles(store: Datastore, texts: Any, wanted: Wanted) -> dict[str, float]:
    lengths, seconds = np.full(BATCH, TEXT), []
    for batch in texts[:10]:
        store.lookup(batch, lengths, wanted)
    for batch in texts:
        start = time.perf_counter()
        store.lookup(batch, lengths, wanted)
        seconds.append((time.perf_counter() - start) / BATCH)
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


def tell(description: str, done: int, total: int) -> None:
    print(f"{description}: {done} of {total}", file=sys.stderr)


if __name__ == "__main__":
    main()
