"""Measured plans, and estimates that are corrected by them."""
