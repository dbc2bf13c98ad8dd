"""Thresholds of plans by Learn then Test, and certificates beside plan texts."""
