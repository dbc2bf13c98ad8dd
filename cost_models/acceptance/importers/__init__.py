"""Acceptance profiles from what serving engines and benchmarks write, one format a file."""
