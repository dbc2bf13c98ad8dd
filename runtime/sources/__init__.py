"""Sources of draft tokens that are not models: one file each.

All run on the host and know no session. `source` is their interface, `registry` makes them from
their declarations for a batch, `continuations` merges their drafts into trees.
"""
