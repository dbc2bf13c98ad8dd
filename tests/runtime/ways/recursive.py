"""Sibling by sibling."""

from __future__ import annotations

from tests.runtime.exact_ways import recursive_ways

WAYS = recursive_ways
