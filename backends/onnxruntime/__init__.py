"""The onnxruntime backend: rounds as ONNX graphs, run by ONNX Runtime through I/O binding."""
