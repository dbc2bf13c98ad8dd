"""Programs timed against each other: benchmarks, races, and the choice of a backend."""
