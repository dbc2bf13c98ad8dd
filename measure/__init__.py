"""Profilers of device and acceptance, and comparisons of what runs."""
