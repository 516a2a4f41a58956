"""A simulated step in numbers: what a schedule says, without an object for each op and copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement_advisor.simulator.arrays import GraphArrays

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """One simulated step.

    Run ``i`` is of op number ``op[i]`` of the graph, constants not counted, on the place number
    ``place[i]`` of ``places``, from ``run_ns[i, 0]`` to ``run_ns[i, 1]``. A copy of ``copy_bytes``
    (-1 if unknown) of the tensor ``copied`` of the ``arrays`` from the place ``source`` to
    ``target`` was under way from ``copy_ns[:, 0]`` to ``[:, 1]``, at whose end the target had
    unpacked it for ``unpacked_ns``.
    Someone wanted ``held_bytes`` of a tensor on ``held_place`` from ``held_ns[:, 0]``, when it was
    made or began to arrive, to ``[:, 1]``.
    """

    step_ns: int
    places: tuple[str, ...]
    op: Ints
    place: Ints
    run_ns: Ints
    arrays: GraphArrays
    copied: Ints
    source: Ints
    target: Ints
    unpacked_ns: Ints
    copy_ns: Ints
    copy_bytes: Ints
    held_place: Ints
    held_ns: Ints
    held_bytes: Ints


def union_ns(spans_ns: Ints) -> int:
    """Return how long at least one of the spans lasts; a row is a start and an end."""
    if not len(spans_ns):
        return 0
    start_ns, end_ns = spans_ns[np.argsort(spans_ns[:, 0], kind="stable")].T
    until_ns = np.maximum.accumulate(end_ns)
    begun_ns = np.maximum(start_ns[1:], until_ns[:-1])
    further_ns: int = np.maximum(end_ns[1:] - begun_ns, 0).sum().item()
    return int(end_ns[0] - start_ns[0]) + further_ns


def most_at_once(spans_ns: Ints, sizes: Ints) -> int:
    """Return the sum of most ``sizes`` whose spans have a moment in common, their ends included."""
    steps = np.concatenate([sizes, -sizes])
    # At one moment, what begins comes before what ends.
    order = np.lexsort((steps < 0, np.concatenate([spans_ns[:, 0], spans_ns[:, 1]])))
    return int(np.cumsum(steps[order]).max(initial=0))
