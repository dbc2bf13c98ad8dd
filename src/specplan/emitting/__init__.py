"""Plans as engines serve them: their files, from a problem or a bundle."""
