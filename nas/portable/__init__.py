"""A network as files of other programs: a Python file for PyTorch, and ONNX.

Each layer states its own line and operators in `nas.layers`; here they are put together. `preparation.py`
adds how an example becomes the input.
"""
