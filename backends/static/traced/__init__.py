"""The state and the ops of a round as tensors that a tracer can follow."""
