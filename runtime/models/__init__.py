"""Causal language models with exact control of positions, cache slots and masks."""
