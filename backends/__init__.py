"""Compile targets, bundles, and what each backend can run."""
