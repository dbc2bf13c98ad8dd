"""By Medusa's criterion."""

from __future__ import annotations

from tests.runtime.exact_ways import passing_ways, typical

WAYS = DEFAULT = passing_ways(typical)
