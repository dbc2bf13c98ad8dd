"""Tuning: plans that may be the best take turns on real prompts until one of them is."""
