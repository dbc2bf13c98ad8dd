"""Pages of `docs/` that are generated from the tables they describe."""
