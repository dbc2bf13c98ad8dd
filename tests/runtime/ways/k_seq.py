"""Under one level."""

from __future__ import annotations

from tests.runtime.exact_ways import k_seq_ways

WAYS = k_seq_ways
