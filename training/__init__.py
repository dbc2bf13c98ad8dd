"""Training of drafters: what would pay, and losses. Only the losses need torch."""
