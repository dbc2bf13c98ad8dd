"""Parts of heads that one or two families have."""
