"""Images of requests, and targets that see them."""
