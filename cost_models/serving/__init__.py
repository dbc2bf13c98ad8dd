"""A server under load: what it is, and mean values in closed form."""
