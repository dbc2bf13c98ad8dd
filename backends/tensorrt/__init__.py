"""Rounds for TensorRT: ONNX that it takes, checked before anything is built, and what builds it."""
