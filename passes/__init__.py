"""Rewrites of plans: one verb per file, each plan to equivalent plan."""
