"""Against the draft's law where that is as sure."""

from __future__ import annotations

from tests.runtime.exact_ways import deferred, mixed_ways

WAYS = DEFAULT = mixed_ways(deferred)
