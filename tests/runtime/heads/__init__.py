"""Heads that read a target's hidden states."""
