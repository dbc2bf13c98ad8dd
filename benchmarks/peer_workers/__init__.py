"""The runtimes that `benchmarks/peers.py` compares, each in a process of its own."""
