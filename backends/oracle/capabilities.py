"""What the oracle runs: every verified plan."""

from __future__ import annotations

from dataclasses import replace

from specplan.backends.eager.capabilities import CAPABILITIES as EAGER

CAPABILITIES = replace(EAGER, backend="oracle", limits={})
