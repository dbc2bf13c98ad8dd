"""Kernels of our own for ONNX Runtime on the CPU: products and attention of few rows."""
