"""What torch-tensorrt converts of a round, known without it: data read from its wheels."""
