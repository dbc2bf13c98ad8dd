"""Plans by number: each verified, live and small; number N is the same plan everywhere.

A plan is built from moves (`moves`), each of which takes a drafted tree and gives another. Every
round is then closed lawfully: the target's forward, a rule that fits, `emit`, a commit of every
state that was written. Types come from the verifier's own inference, so that an op is written
only where its operands fit. What cannot be told op by op is left to `verify_plan`: a plan that it
refuses is built anew from the next numbers.

Models for these plans: `target` has 4 layers, `draft` and `small` 2. The others are modules: `head`
reads the target's last hidden state of the token before, `heads` does so for several tokens ahead,
`judge` reads the draft's and gives a score, `reader` attends to the target's cache. Tokens lie
below 24.
"""

from __future__ import annotations

from tests.ir.generated.plans import generated_plan, generated_text
from tests.ir.generated.sources import DATASTORE

MODULES = frozenset({"head", "heads", "judge", "reader"})
"""Roles that are modules, and no models that could decode by themselves."""

__all__ = ["DATASTORE", "MODULES", "generated_plan", "generated_text"]
