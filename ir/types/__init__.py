"""What is known of a plan before it runs: static types, sizes, scopes and lifetimes."""
