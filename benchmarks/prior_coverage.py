"""Whether the shipped priors of acceptance cover published figures that set nothing.

Run from the repository root:

    python benchmarks/prior_coverage.py

Sources are split by a hash of their names before anything is fitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from specplan.cost_models.acceptance.priors.fit import (
    CheckedLength,
    checked_lengths,
    checked_words,
)
from specplan.cost_models.acceptance.priors.tables import KINDS


def main() -> None:
    """Print the table."""
    checked = checked_lengths()
    for one in checked:
        figure, interval = one.figure, one.interval
        mark = " " if one.inside else "!"
        print(
            f"{mark} {figure.kind:11} {figure.task:13} K={figure.draft_tokens:<2} "
            f"{figure.length:5.2f} in {interval.low:.2f} to {interval.high:.2f}  "
            f"{figure.models} ({figure.source})"
        )
    print()
    for kind in KINDS:
        own = [one for one in checked if one.figure.kind == kind]
        print(f"{kind:11} {summary(own) if own else 'no figures'}; {checked_words(kind)}")
    print(f"all         {summary(checked)}")


def summary(checked: Sequence[CheckedLength]) -> str:
    """Coverage over figures, and over sources as their mean."""
    by_source: dict[str, list[bool]] = defaultdict(list)
    for one in checked:
        by_source[one.figure.source].append(one.inside)
    inside = sum(one.inside for one in checked)
    shares = [sum(marks) / len(marks) for marks in by_source.values()]
    return (
        f"{inside} of {len(checked)} figures ({inside / len(checked):.0%}) of {len(shares)} "
        f"sources (mean of sources {sum(shares) / len(shares):.0%})"
    )


if __name__ == "__main__":
    main()
