"""Acceptance laws from what people have: counts, rates, histograms, mean lengths."""
