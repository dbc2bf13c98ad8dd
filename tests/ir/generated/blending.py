"""Rows of several models in one."""

from __future__ import annotations

from specplan.ir.tables.laws import LAW_ENTRIES
from tests.ir.generated.builder import Builder
from tests.ir.generated.judging import entry_text


def mixed(build: Builder, first: str, *others: str) -> str:
    """Rows combined by some law; a tree stands for the rows that its children were grown from."""
    law = build.pick(*LAW_ENTRIES)
    if law.name not in ("linear", "average"):  # these combine two
        others = others[:1]
    weights, entry = "", entry_text(build, law)
    if law.name == "linear" and build.chance(0.7):
        factors = ", ".join("0.5" for _ in range(1 + len(others)))
        entry = f"linear(weights=[{factors}])"
    elif law.name in ("linear", "average") and build.chance(0.5):
        each = (build.let(f'compute "{build.pick(0.5, 1.0)}"', "w") for _ in (first, *others))
        weights = f" weights=[{', '.join(each)}]"
    return build.let(f"mix {first} {' '.join(others)} law={entry}{weights}", "q")
