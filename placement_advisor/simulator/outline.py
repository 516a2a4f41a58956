"""A simulated step in numbers: what a schedule says, without an object for each op and copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.graph.op_graph import Op

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """One simulated step.

    Op ``i`` of ``ops`` ran on the place number ``place[i]`` of ``places`` from ``run_ns[i, 0]`` to
    ``run_ns[i, 1]``. A copy of ``copy_bytes`` (-1 if unknown) to the place ``target`` was under way
    from ``copy_ns[:, 0]`` to ``copy_ns[:, 1]``.
    """

    step_ns: int
    places: tuple[str, ...]
    ops: tuple[Op, ...]
    place: Ints
    run_ns: Ints
    target: Ints
    copy_ns: Ints
    copy_bytes: Ints


def union_ns(spans_ns: Ints) -> int:
    """Return how long at least one of the spans lasts; a row is a start and an end."""
    if not len(spans_ns):
        return 0
    start_ns, end_ns = spans_ns[np.argsort(spans_ns[:, 0], kind="stable")].T
    until_ns = np.maximum.accumulate(end_ns)
    begun_ns = np.maximum(start_ns[1:], until_ns[:-1])
    further_ns: int = np.maximum(end_ns[1:] - begun_ns, 0).sum().item()
    return int(end_ns[0] - start_ns[0]) + further_ns
