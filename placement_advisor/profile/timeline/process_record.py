"""What a profile shows of one process that computes: runs of ops, and the ends of copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from placement_advisor.profile.spans import Spans

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Runs of ops on a device in order of their starts; ``name`` are places among ``names``.

    ``collectives`` are those of the names that are of collective ops.
    """

    names: tuple[str, ...]
    collectives: frozenset[str]
    name: Ints
    spans: Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One copy: a tensor from a device to another, with the op that made it."""

    tensor: str
    source: str
    target: str
    start_ns: int
    end_ns: int


@dataclass(slots=True, kw_only=True)
class Process:
    """What one file shows of a process: runs of ops, and moments at the ends of copies by node.

    ``executing`` are disjoint spans in which an op ran or the executor was at work on one.
    """

    device: str
    ran: Ran
    executing: Spans
    sends: dict[str, list[int]] = field(default_factory=dict)
    arrivals: dict[str, list[int]] = field(default_factory=dict)
