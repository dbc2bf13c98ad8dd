"""A chain as a whole."""

from __future__ import annotations

from tests.runtime.exact_ways import block_ways

WAYS = block_ways
