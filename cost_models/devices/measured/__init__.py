"""Devices known from measurements: rows of times, fits and interpolation."""
