"""Predictions of published numbers: one file per published table or family of systems.

A file here exposes

- `SYSTEMS`: the names (`system` of a row) that it answers for. Several files may name one system
  where several papers measured it; each answers for the rows of its own source.
- `predictions(rows)`: an iterator over `Prediction` and `Unpredicted`, given the rows of those
  systems. Rows may be missing, unknown settings may turn up; what cannot be predicted is either
  left out or yielded as `Unpredicted` with the reason.

It is found by its place: `benchmarks/published.py` scans the folder.
"""
