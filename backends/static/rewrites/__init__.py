"""Rewrites of a traced round: constants folded, kernels fused, writes made explicit."""
