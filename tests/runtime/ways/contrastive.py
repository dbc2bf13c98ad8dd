"""Against the contrast of both laws; at its default strength that has no fractions."""

from __future__ import annotations

from tests.runtime.exact_ways import contrasted, mixed_ways

WAYS = mixed_ways(contrasted)
PARAMETERS = {"beta": 1.0}
