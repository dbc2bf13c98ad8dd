"""Every child a point."""

from __future__ import annotations

from tests.runtime.exact_ways import deterministic_ways

WAYS = deterministic_ways
