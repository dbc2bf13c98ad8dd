"""Draft models as what is trained: distilled from their target."""
