"""What checkpoints say about themselves: safetensors, GGUF and quantisation headers."""
