"""Device-placement profiler and advisor for TensorFlow models."""

from placement_advisor.workload import Workload

__all__ = ["Workload"]
__version__ = "0.1.0"
