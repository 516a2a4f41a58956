"""Peak memory of a device in the profiled steps, from what TensorFlow's allocator recorded.

The profiler notes every allocation and release (``MemoryAllocation``, ``MemoryDeallocation``), so
that what a step holds at each moment is a sum over what came and went. It stands above a level:
what is held between steps, above all variables, of this candidate and of all others prepared in the
same process. Nothing in a profile divides that level among them; the state of one candidate is
known by its placement.

Two sizes come with each event: the bytes asked for, and those of the piece of memory that was found
for them, which can be up to twice as much. The first are what a step needs, and count here; the
second depend on what came before.

Left out: what the allocator does not report. The one that TensorFlow has on CPUs with oneDNN keeps
silent on pieces below 256 KiB (with ``TF_CPU_ALLOCATOR_USE_BFC`` it has another one, which reports
all); libraries with memory of their own, as gRPC for what it has received in part.
"""

from __future__ import annotations

from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.profile.timeline.step_windows import StepWindows
    from placement_advisor.profile.xspace.xplane import Line

ALLOCATION = "MemoryAllocation"
RELEASE = "MemoryDeallocation"


def measured_memory(lines: Iterable[Line], windows: StepWindows) -> tuple[int, ...]:
    """Return the most bytes above the level that each step in the windows had asked for.

    Steps in which nothing was reported are left out.
    """
    changes = sorted(_changes(lines), key=itemgetter(0))
    held = _above_least([size_bytes for _, size_bytes in changes])
    peaks: dict[int, int] = {}
    for (at_ns, _), held_bytes in zip(changes, held, strict=True):
        step = windows.at(at_ns)
        if step is not None:
            peaks[step.start_ns] = max(held_bytes, peaks.get(step.start_ns, 0))
    return tuple(peaks.values())


def _changes(lines: Iterable[Line]) -> Iterator[tuple[int, int]]:
    """Yield when a piece came, and its size; one that went has a negative size."""
    for line in lines:
        for event in line.events:
            if event.name in (ALLOCATION, RELEASE):
                size_bytes = int(event.stats.get("requested_bytes", 0))
                yield event.start_ns, -size_bytes if event.name == RELEASE else size_bytes


def _above_least(changes: Sequence[int]) -> list[int]:
    """Return what is held after each change, above the least that was held at any time.

    That is the level between steps: a step gives back what it took, though its last releases may
    come when it has ended for the client.
    """
    held = list(accumulate(changes))
    least = min(held, default=0)
    return [size - least for size in held]
