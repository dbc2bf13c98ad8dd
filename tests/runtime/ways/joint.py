"""Whole paths, by their joint probability."""

from __future__ import annotations

from fractions import Fraction

from tests.runtime.exact_ways import joint_ways

WAYS = joint_ways(Fraction(7, 10))
PARAMETERS = {"threshold": 0.7}
DEFAULT = joint_ways(Fraction(3, 10))
