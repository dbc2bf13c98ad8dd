"""By BiLD's criterion."""

from __future__ import annotations

from tests.runtime.exact_ways import not_too_unlikely, passing_ways

WAYS = passing_ways(not_too_unlikely(1.5))
PARAMETERS = {"threshold": 1.5}
DEFAULT = passing_ways(not_too_unlikely(5.0))
