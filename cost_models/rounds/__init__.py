"""What one round of a plan asks of a device (`demands`), and how long that takes (`pricing`)."""
