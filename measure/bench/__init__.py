"""Benchmarks: programs timed against each other, and the choice of a backend."""
