"""Training of drafters on their target's own texts; `train.py` alone needs no torch."""
