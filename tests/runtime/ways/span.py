"""Token by token, beside half of the best one's probability; else the target draws."""

from __future__ import annotations

from fractions import Fraction

from tests.runtime.exact_ways import span_ways

WAYS = DEFAULT = span_ways(Fraction(1, 2))
