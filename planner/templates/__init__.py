"""Parts of plans that several methods share."""
