"""Device-placement profiler and advisor for TensorFlow models."""

from placement_advisor.placing import place
from placement_advisor.workload import Workload

__all__ = ["Workload", "place"]
__version__ = "0.1.0"
