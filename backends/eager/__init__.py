"""The interpreter of plans: every combination of ops, eagerly, on a batch of requests.

The text is the truth, and caches trail it. The last token of a text is the root of all that a round
drafts. There is one form of tree, tensors `[batch, 1 + nodes]` whose column 0 is the root
(`specplan.backends.ops.tensors.values`): tokens, parents, depths, which nodes live, scores, and the
probabilities that a node was drawn from. Shapes that differ by request are dead columns and parents
of their own; no op asks how a tree came about.

A node is its path of tokens, and its key is a hash of that path from the start of the text. So
trees that were pruned, grafted, adopted or stored keep their nodes, and new tokens make new ones. A
cache knows the keys in its slots behind the text; a pass looks up which of its nodes have slots
already and which ancestors each one sees, and drops nodes whose ancestors are not there
(`passes/forward.py`). Logits are looked up by keys too: a node without logits ends an accepted
path. A commit keeps the longest prefix of the emitted tokens whose keys the cache knows, the bonus
included (`state/caches.py`).

Where the verifier knows all shapes, slots and masks are constants and no keys are compared
(`state/static_slots.py`); tokens do not depend on it.

Each span of layers that some forward of the plan runs by itself has a length of its own. The host
catches a span up in passes of text alone when more is missing than a forward may catch up, prompts
too. `when` leaves out the requests that do not enter; loops end by request (`regions.py`).

All models follow one protocol (`specplan.runtime.models.modules`), and may read hidden states that
other passes recorded, by the same keys.
"""
