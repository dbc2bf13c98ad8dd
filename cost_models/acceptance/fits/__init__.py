"""Acceptance profiles from figures that people have: counts, rates, histograms, mean lengths."""
