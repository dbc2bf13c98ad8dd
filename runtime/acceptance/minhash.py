"""Rule `minhash`: target and draft sample by one weighted MinHash, and what agrees is accepted.

As rule `gumbel`, with the other coupling of its paper: what follows a node is drawn from the
target's distribution by consistent weighted sampling (`specplan.runtime.races`), number d for what
follows nodes at depth d. The target's tokens depend on the numbers alone and never on the draft.
Where the draft took its children so from its own distribution, a single child is accepted with
(1 - TV) / (1 + TV) at least.

In a plan, `grow how=minhash` draws the children over the numbers that `accept` reads.

Sources: Daliri, Musco, Suresh 2024, Coupling without Communication and Drafter-Invariant
Speculative Decoding, arXiv 2408.07978; Ioffe 2010, Improved Consistent Sampling, Weighted Minhash
and L1 Sketching, ICDM.
"""

from __future__ import annotations

from specplan.runtime.acceptance._races import by_race

TARGET = "probabilities"
"""What `target` holds."""

accept, accept_vectorised, accept_reference = by_race("minhash")
"""See `specplan.runtime.acceptance`."""
