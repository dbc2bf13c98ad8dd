"""A server under load: what it is, mean values in closed form, and a simulation by the step."""
