"""How much the tests repeat: once by default, the long matrix where `SPECPLAN_LONG=1` is set."""

from __future__ import annotations

import os

LONG = os.environ.get("SPECPLAN_LONG", "") not in ("", "0")
"""Whether the long matrix runs (`make test-all`)."""


def sized(quick: int, long: int) -> int:
    """A number of cases: `quick` in `make test`, `long` in `make test-all`."""
    return long if LONG else quick
