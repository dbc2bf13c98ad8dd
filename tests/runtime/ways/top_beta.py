"""By SpecDec's criterion."""

from __future__ import annotations

from tests.runtime.exact_ways import among_the_first, passing_ways

WAYS = passing_ways(among_the_first(2, 1.0))
PARAMETERS = {"beta": 2, "tolerance": 1.0}
DEFAULT = passing_ways(among_the_first(5, 3.0))
