"""Rule `gumbel`: target and draft draw with the same randomness, and what agrees is accepted.

What follows a node is drawn from the target's distribution by a race whose noise is made of one
number (`specplan.runtime.races`): number d for what follows nodes at depth d, the root being at
depth 0. Where a live child holds the token drawn, the walk goes on there, else the token is the
bonus. So the target's tokens depend on the numbers alone and never on the draft: lossless at every
temperature, for any tree. Where the draft took its children by the same race over its own
distribution q, a single child is accepted with sum over x of 1 / sum over y of max(p(y) / p(x),
q(y) / q(x)), at least (1 - TV) / (1 + TV); where it drew with other numbers, as `naive` accepts.

In a plan, `grow how=shared` runs the draft's races over the numbers that `accept` reads, siblings
being the first, second, ... of one race. Where the stream has `key=position`, the text is the same
whatever drafts it.

Source: Daliri, Musco, Suresh 2024, Coupling without Communication and Drafter-Invariant Speculative
Decoding, arXiv 2408.07978.
"""

from __future__ import annotations

from specplan.runtime.acceptance._races import by_race

TARGET = "probabilities"
"""What `target` holds."""

accept, accept_vectorised, accept_reference = by_race("shared")
"""See `specplan.runtime.acceptance`."""
