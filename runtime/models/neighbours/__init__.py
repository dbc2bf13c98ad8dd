"""Stores of a target's hidden states over a corpus."""
