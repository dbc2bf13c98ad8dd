"""Heads, which read a target's hidden states and draft: one class for every family."""
