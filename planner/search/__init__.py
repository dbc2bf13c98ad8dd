"""Candidates, their estimates, and the choice among them."""
