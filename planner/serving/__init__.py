"""A plan under load: the requests it serves within the limits."""
