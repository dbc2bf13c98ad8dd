"""The target draws."""

from __future__ import annotations

from tests.runtime.exact_ways import naive_ways

WAYS = naive_ways
