"""Rounds as ONNX models, for every backend that runs or builds from ONNX."""
