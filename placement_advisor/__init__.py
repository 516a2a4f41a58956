"""Device-placement profiler and advisor for TensorFlow models."""

__version__ = "0.1.0"
