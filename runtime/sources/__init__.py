"""Sources of drafted tokens that are not models: one file each."""
