"""A network as files of other programs: a Python file for PyTorch, and ONNX."""
