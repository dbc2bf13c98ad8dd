"""The reference backend: an eager interpreter of plans."""
