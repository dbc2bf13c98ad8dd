"""Profilers of devices and acceptance, and benchmarks."""
