"""What one round of a plan asks of a device, and the seconds that this takes."""
