"""What a step of training computes: packed texts, remembered states, loss and gradients."""
