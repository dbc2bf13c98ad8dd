"""A report of a decision that a person can read, send and keep: one HTML file, or Markdown."""

from __future__ import annotations

from specplan.report.page import render, write_report

__all__ = ["render", "write_report"]
