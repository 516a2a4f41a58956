"""Reads profiles without TensorFlow: what devices did in steps that were recorded."""
