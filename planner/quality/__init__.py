"""Plans that change the output: which of them keep a quality limit, and what a loss buys."""
