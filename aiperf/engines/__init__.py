"""The ways to make a training step: eager, captured as a graph, compiled, and in `fused` with few passes over
memory.

`engine.py` has the interface, `registry.py` the engines by name, and `agreement.py` compares an engine with
the eager one before it is used. docs/performance.md has what each of them gained.
"""
