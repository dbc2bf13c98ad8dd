"""What ops and forwards take on this machine."""
