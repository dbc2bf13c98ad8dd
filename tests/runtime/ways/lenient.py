"""Token by token, half of the draft's probability in the comparison."""

from __future__ import annotations

from fractions import Fraction

from tests.runtime.exact_ways import lenient_ways

WAYS = DEFAULT = lenient_ways(Fraction(1, 2))
