"""The interpreter of plans: every combination of ops, eagerly, on a batch of requests.

Text is the truth, and caches trail it. The last token of a text is the root of all that a round
drafts. There is one form of tree, tensors `[batch, 1 + nodes]` whose column 0 is the root
(`specplan.backends.ops.tensors.values`): tokens, parents, depths, which nodes live, scores, and the
probabilities that a node was drawn from. Shapes that differ by request are dead columns and parents
of their own; nothing asks how a tree came about.

A node is its path of tokens, and its key is a hash of that path from the begin of the text. So
trees that were pruned, grafted, adopted or carried on keep their nodes, and new tokens make new
ones. A cache holds the keys in its slots behind the text; a pass asks which of its nodes have slots
already, which ancestors each one sees, and drops those whose ancestors are not there
(`forward.py`). Rows are known by keys too: what lacks a row is dead, and a node without one ends an
accepted path. A commit keeps the longest prefix of what was emitted whose keys the cache holds, the
bonus included (`caches.py`).

Where the verifier knows all shapes, slots and masks are constants and no keys are compared
(`placing.py`); what is decoded does not depend on it.

Layers have lengths of their own, one for each span that some forward of the plan runs by itself
(`passes.py`). The host catches a span up in passes of text alone when more is missing than a
forward may catch up, prompts too. `when` leaves out the requests that do not enter; loops end by
request (`regions.py`).

Whatever runs follows one protocol (`specplan.runtime.models.modules`), and may read hidden states
that other passes recorded, by the same keys.
"""
