"""Plans that were measured as they ran, and estimates corrected by them."""
