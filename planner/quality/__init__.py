"""Plans that change the output: which stay within a quality limit, and speed against loss."""
