"""The text, JSON and graph forms of a plan."""
