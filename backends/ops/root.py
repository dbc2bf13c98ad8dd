"""`root`: the tree without drafted nodes."""

from __future__ import annotations

from specplan.backends.ops.values import first_tree as root

__all__ = ["root"]
