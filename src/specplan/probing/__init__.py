"""Probes: folders that measure a running engine with and without drafters, and their import."""
