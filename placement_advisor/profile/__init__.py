"""Reads profiles without TensorFlow."""
