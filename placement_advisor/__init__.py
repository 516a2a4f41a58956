"""Device-placement profiler and advisor for TensorFlow models.

What is named here is public; it is imported when it is first asked for, and TensorFlow only when
`place`, `make_parallel` or `record_steps` is called, or `keras.PlacementProfiler` is asked for. A
model file that imports `Workload` pays for nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from placement_advisor.workload import Workload

if TYPE_CHECKING:
    from placement_advisor import keras
    from placement_advisor.api import analyze, apply, placed, search, simulate
    from placement_advisor.candidates.searched import SearchResult
    from placement_advisor.cost.table import CostBasis, CostTable, OpCost
    from placement_advisor.errors import AdvisorError, BatchSplitError, PlacementError
    from placement_advisor.graph.op import Edge, Op, Role
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Basis, Cluster, CopyWork, Device, Dispatch, Link
    from placement_advisor.placing import make_parallel, place, record_steps

_MODULES = {
    "api": ("analyze", "apply", "placed", "search", "simulate"),
    "candidates.searched": ("SearchResult",),
    "cost.table": ("CostBasis", "CostTable", "OpCost"),
    "machine.devices": ("Basis", "Cluster", "CopyWork", "Device", "Dispatch", "Link"),
    "errors": ("AdvisorError", "BatchSplitError", "PlacementError"),
    "graph.op_graph": ("Edge", "Op", "OpGraph", "Role"),
    "graph.placement": ("Placement",),
    "placing": ("make_parallel", "place", "record_steps"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AdvisorError",
    "Basis",
    "BatchSplitError",
    "Cluster",
    "CopyWork",
    "CostBasis",
    "CostTable",
    "Device",
    "Dispatch",
    "Edge",
    "Link",
    "Op",
    "OpCost",
    "OpGraph",
    "Placement",
    "PlacementError",
    "Role",
    "SearchResult",
    "Workload",
    "analyze",
    "apply",
    "keras",
    "make_parallel",
    "place",
    "placed",
    "record_steps",
    "search",
    "simulate",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name == "keras":
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
