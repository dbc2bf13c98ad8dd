"""One forward of a model: which nodes run, what enters each layer, which logits come out."""
