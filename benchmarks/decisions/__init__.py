"""What `decision_quality.py` needs: grids of measured settings, and laws from one of them."""
