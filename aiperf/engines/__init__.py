"""The ways to make a training step: eager, captured as a graph, compiled."""
