"""What children answer with. Free of TensorFlow: the command's process reads these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.graph import OpGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the command learns about the model; the bundle itself stays on disk."""

    graph: OpGraph
    name: str
    mode: str
    chosen: str
    batch_size: int | None
    tensorflow_version: str
