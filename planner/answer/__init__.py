"""The answer in the words of a user: the decision, its numbers, and what was not tried."""
