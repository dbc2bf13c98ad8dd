"""Trees of continuations as they are meant, written down slowly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from specplan.runtime.sources.source import SourceDrafts, Wanted

Path = tuple[int, ...]


def stated_paths(
    continuations: Sequence[Path], wanted: Wanted, weights: Sequence[float] | None = None
) -> list[Path]:
    """The paths of all nodes of one text's tree, slot by slot.

    Args:
        continuations: what followed, each as long as it goes on.
        wanted: how much.
        weights: of each, sums of powers of two; None for 1.
    """
    masses: Counter[Path] = Counter()
    for number, tokens in enumerate(continuations):
        for end in range(1, min(len(tokens), wanted.length) + 1):
            masses[tokens[:end]] += 1 if weights is None else weights[number]
    ranked = sorted(masses, key=lambda path: (-masses[path], len(path), path))
    if wanted.nodes is not None:
        return ranked[: wanted.size]
    paths: list[Path] = []
    for path in [path for path in ranked if len(path) == 1][: wanted.children]:
        going: Path | None = path
        while going is not None:
            paths.append(going)
            below = (other for other in ranked if other[:-1] == going)
            going = next(below, None)
    return paths


def draft_paths(drafts: SourceDrafts) -> list[list[Path]]:
    """The paths of the nodes that were found for each text, slot by slot."""
    trees: list[list[Path]] = []
    for tokens, parents, live in zip(
        drafts.tokens.tolist(), drafts.parents.tolist(), drafts.live.tolist(), strict=True
    ):
        paths: dict[int, Path] = {-1: ()}
        for slot in (slot for slot, lives in enumerate(live) if lives):
            paths[slot] = (*paths[parents[slot]], tokens[slot])
        trees.append([path for slot, path in paths.items() if slot >= 0])
    return trees
