"""Prices from the kernel tables of the `aiconfigurator-core` package (extra `silicon`)."""
