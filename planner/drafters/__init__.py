"""The possible drafters of a problem, and what is known of their acceptance."""
