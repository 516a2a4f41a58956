"""A step -> a flat graph with its state, and the op graph of it."""
