"""Compile targets: each compiles the rounds of a plan to an executable, or refuses by name."""
