"""What serving engines and load generators say of how long requests took."""
