"""Acceptance of Sequoia's demo, of which the published trees and speeds are known."""

from __future__ import annotations

# `acceptance-rate-vector.pt` of github.com/Infini-AI-Lab/Sequoia at 0ff3ff7, without its leading 0
# and its last entry (rejection).
DEMO = (
    0.634183, 0.107946, 0.056972, 0.022489, 0.01949, 0.014993, 0.004498, 0.002999,
    0.011994, 0.004498, 0.007496, 0.004498, 0.005997, 0.002999, 0.001499, 0.002999,
    0.001499, 0.002999, 0.0, 0.002999, 0.002999, 0.002999, 0.0, 0.001499,
    0.0, 0.001499, 0.0, 0.0, 0.0, 0.001499, 0.001499, 0.001499,
)  # fmt: skip
"""P(the child of rank 0, 1, ... 31 is accepted)."""
