"""A round as one graph of tensors: static shapes, nothing read on the host, one call."""
