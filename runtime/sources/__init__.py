"""Sources of drafted tokens that are not models: one file each.

All are host side and know no session: `source` says what they have in common, `registry` makes one
from its declaration, `use` keeps them for a batch.
"""
