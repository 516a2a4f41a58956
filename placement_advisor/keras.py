"""What goes into `fit` of Keras: a callback that records steps of a training.

This is only the door: Keras is imported when the callback is asked for, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement_advisor.tf.training.recording import PlacementProfiler

__all__ = ["PlacementProfiler"]


def __getattr__(name: str) -> Any:
    if name != "PlacementProfiler":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from placement_advisor.tf.training.recording import PlacementProfiler

    return PlacementProfiler


def __dir__() -> list[str]:
    return sorted(__all__)
