"""The reference backend: eager, short, obviously right, and the oracle of every other one."""
