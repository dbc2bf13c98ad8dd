"""Who may draft for a problem, and what is known of their acceptance."""
