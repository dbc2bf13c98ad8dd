"""What a batch keeps between ops and rounds: caches, slots, hidden states, texts."""
