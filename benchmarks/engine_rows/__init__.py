"""Measurements of serving engines: readers of public collections, and what we predict for them."""
