"""Peak memory of a device in the profiled steps, from what TensorFlow's allocator recorded.

The profiler notes every allocation and release (``MemoryAllocation``, ``MemoryDeallocation``), so
that what a step holds at each moment is a sum over what came and went. It stands above a level:
what is held between steps, above all variables, of this candidate and of all others prepared in the
same process. Nothing in a profile divides that level among them; the state of one candidate is
known by its placement.

Two sizes come with each event: the bytes asked for, and those of the piece of memory that was found
for them, which can be up to twice as much. The first are what a step needs, the second depend on
what came before.

Left out: what the allocator does not report. The one that TensorFlow has on CPUs with oneDNN keeps
silent on pieces below 256 KiB (with ``TF_CPU_ALLOCATOR_USE_BFC`` it has another one, which reports
all); libraries with memory of their own, as gRPC for what it has received in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from statistics import median, median_low
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.profile.timeline.step_windows import StepWindows
    from placement_advisor.profile.xspace.xplane import Event, Line

ALLOCATION = "MemoryAllocation"
RELEASE = "MemoryDeallocation"
MAX_HOLDERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Memory held at the peak; ``op`` took it, None if no op did (tensors that arrive)."""

    op: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """What each step held at its worst moment above the level between steps.

    ``asked_bytes`` were asked for, ``taken_bytes`` taken, step by step; steps in which nothing was
    reported are left out. ``level_bytes`` were taken between steps. ``holders`` are the largest, in
    the step whose peak is the (lower) median.
    """

    asked_bytes: tuple[int, ...]
    taken_bytes: tuple[int, ...]
    level_bytes: int
    holders: tuple[Holder, ...]

    @property
    def median_asked_bytes(self) -> int:
        """What a typical step holds, as asked for."""
        return round(median(self.asked_bytes))

    @property
    def median_taken_bytes(self) -> int:
        """What a typical step holds, in whole pieces."""
        return round(median(self.taken_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One piece of memory that came or went."""

    at_ns: int
    place: tuple[str, int]
    op: str | None
    asked_bytes: int
    taken_bytes: int
    level_bytes: int
    is_release: bool


def measured_memory(
    lines: Iterable[Line], windows: StepWindows, allocator: str | None = None
) -> MeasuredMemory | None:
    """Return the memory of the steps in the windows, None if nothing was reported in them.

    ``allocator`` picks one of those of a process with several devices (``GPU_0_bfc``).
    """
    changes = sorted(_changes(lines, allocator), key=lambda change: change.at_ns)
    asked = _above_least([_signed(change, change.asked_bytes) for change in changes])
    taken = _above_least([_signed(change, change.taken_bytes) for change in changes])
    steps: dict[int, list[int]] = {}
    for place, change in enumerate(changes):
        step = windows.at(change.at_ns)
        if step is not None:
            steps.setdefault(step.start_ns, []).append(place)
    if not steps:
        return None
    peaks = [max(places, key=asked.__getitem__) for places in steps.values()]
    typical_bytes = median_low(asked[place] for place in peaks)
    typical = next(place for place in peaks if asked[place] == typical_bytes)
    return MeasuredMemory(
        asked_bytes=tuple(asked[place] for place in peaks),
        taken_bytes=tuple(max(taken[place] for place in places) for places in steps.values()),
        level_bytes=_level_bytes(changes),
        holders=_holders(changes[: typical + 1]),
    )


def _changes(lines: Iterable[Line], allocator: str | None) -> Iterator[_Change]:
    for line in lines:
        for event in line.events:
            if event.name in (ALLOCATION, RELEASE):
                change = _change(event)
                if allocator in (None, change.place[0]):
                    yield change


def _change(event: Event) -> _Change:
    stats = event.stats
    return _Change(
        at_ns=event.start_ns,
        place=(str(stats.get("allocator_name", "")), int(stats.get("addr", 0))),
        op=str(stats["tf_op"]) if "tf_op" in stats else None,
        asked_bytes=int(stats.get("requested_bytes", 0)),
        taken_bytes=int(stats.get("allocation_bytes", 0)),
        level_bytes=int(stats.get("bytes_allocated", 0)),
        is_release=event.name == RELEASE,
    )


def _signed(change: _Change, size_bytes: int) -> int:
    return -size_bytes if change.is_release else size_bytes


def _above_least(changes: Sequence[int]) -> list[int]:
    """Return what is held after each change, above the least that was held at any time.

    That is the level between steps: a step gives back what it took, though its last releases may
    come when it has ended for the client.
    """
    held = list(accumulate(changes))
    least = min(held, default=0)
    return [size - least for size in held]


def _level_bytes(changes: Iterable[_Change]) -> int:
    least: dict[str, int] = {}
    for change in changes:
        name = change.place[0]
        least[name] = min(change.level_bytes, least.get(name, change.level_bytes))
    return sum(least.values())


def _holders(changes: Iterable[_Change]) -> tuple[Holder, ...]:
    """Return the largest of what was taken and not given back by these changes."""
    held: dict[tuple[str, int], Holder] = {}
    for change in changes:
        held.pop(change.place, None)
        if not change.is_release:
            held[change.place] = Holder(op=change.op, size_bytes=change.asked_bytes)
    return tuple(sorted(held.values(), key=lambda holder: -holder.size_bytes)[:MAX_HOLDERS])
