"""GPU kernels of our own, as torch ops: tree attention, acceptance, moves within a cache."""
