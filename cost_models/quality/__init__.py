"""What a plan that changes the output loses: bounds that need no distribution, and certificates."""
