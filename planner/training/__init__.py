"""Drafters that are not trained yet: whether one would pay, and what its training would cost."""
