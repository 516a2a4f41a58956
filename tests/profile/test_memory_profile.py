"""Memory of profiled steps, on allocations small enough to add up by hand."""

from __future__ import annotations

from placement_advisor.profile.timeline.allocator_memory import (
    Holder,
    MeasuredMemory,
    measured_memory,
)
from placement_advisor.profile.timeline.step_windows import OpenStep, StepWindows
from placement_advisor.profile.xspace.xplane import Event, Line


class Allocator:
    """An allocator that finds pieces in steps of 64 bytes, and the events that it leaves behind."""

    def __init__(self, level_bytes: int, name: str = "bfc") -> None:
        self.name, self.level_bytes = name, level_bytes
        self.sizes: dict[int, int] = {}
        self.events: list[Event] = []

    def take(self, at_ns: int, place: int, size_bytes: int, op: str | None = None) -> None:
        self.sizes[place] = size_bytes
        self._note("MemoryAllocation", at_ns, place, size_bytes, op)

    def give_back(self, at_ns: int, place: int, size_bytes: int | None = None) -> None:
        self._note("MemoryDeallocation", at_ns, place, size_bytes or self.sizes.pop(place), None)

    def _note(self, what: str, at_ns: int, place: int, size_bytes: int, op: str | None) -> None:
        taken_bytes = -(-size_bytes // 64) * 64
        self.level_bytes += taken_bytes if what == "MemoryAllocation" else -taken_bytes
        stats: dict[str, int | float | str | bytes] = {
            "allocator_name": self.name,
            "addr": place,
            "requested_bytes": size_bytes,
            "allocation_bytes": taken_bytes,
            "bytes_allocated": self.level_bytes,
        }
        if op is not None:
            stats["tf_op"] = op
        self.events.append(Event(name=what, start_ns=at_ns, duration_ns=0, stats=stats))


def steps(*windows: tuple[int, int]) -> StepWindows:
    return StepWindows([OpenStep(start_ns=start, end_ns=end) for start, end in windows])


def test_a_step_holds_what_it_took_and_has_not_given_back() -> None:
    allocator = Allocator(level_bytes=6_400)
    allocator.take(10, 1, 100, "a")
    allocator.take(20, 2, 30)
    allocator.give_back(30, 1)
    allocator.take(40, 3, 50, "b")
    allocator.give_back(50, 2)
    allocator.give_back(60, 3)
    memory = measured_memory([Line(name="thread", events=tuple(allocator.events))], steps((0, 99)))
    # a and what arrived: 100 + 30, in pieces of 128 + 64.
    assert memory == MeasuredMemory(
        asked_bytes=(130,),
        taken_bytes=(192,),
        level_bytes=6_400,
        holders=(Holder(op="a", size_bytes=100), Holder(op=None, size_bytes=30)),
    )


def test_events_of_several_threads_are_one_sequence() -> None:
    allocator = Allocator(level_bytes=0)
    allocator.take(10, 1, 100)
    allocator.give_back(20, 1)
    allocator.take(30, 1, 60)
    allocator.give_back(40, 1)
    first, second = allocator.events[::2], allocator.events[1::2]
    lines = [Line(name="1", events=tuple(first)), Line(name="2", events=tuple(second))]
    memory = measured_memory(lines, steps((0, 99)))
    assert memory is not None
    assert memory.asked_bytes == (100,)


def test_a_release_that_comes_after_the_step_does_not_raise_the_level() -> None:
    allocator = Allocator(level_bytes=640)
    for start_ns in (0, 100):
        allocator.take(start_ns + 10, 1, 128)
        allocator.give_back(start_ns + 55, 1)
    line = Line(name="thread", events=tuple(allocator.events))
    memory = measured_memory([line], steps((0, 50), (100, 150)))
    assert memory is not None
    assert memory.asked_bytes == (128, 128)
    assert memory.level_bytes == 640


def test_what_was_there_before_the_profile_may_go_in_a_step() -> None:
    # An update takes a new piece for its variable and gives the old one back.
    allocator = Allocator(level_bytes=1_000)
    allocator.take(10, 7, 500, "update")
    allocator.give_back(20, 3, 500)
    memory = measured_memory([Line(name="1", events=tuple(allocator.events))], steps((0, 99)))
    assert memory is not None
    assert memory.asked_bytes == (500,)


def test_of_several_steps_the_median_counts_and_its_holders_are_named() -> None:
    allocator = Allocator(level_bytes=0)
    for step, (op, size_bytes) in enumerate([("low", 10), ("high", 900), ("middle", 70)]):
        allocator.take(100 * step + 10, 1, size_bytes, op)
        allocator.give_back(100 * step + 20, 1)
    line = Line(name="thread", events=tuple(allocator.events))
    memory = measured_memory([line], steps((0, 50), (100, 150), (200, 250)))
    assert memory is not None
    assert memory.asked_bytes == (10, 900, 70)
    assert (memory.median_asked_bytes, memory.median_taken_bytes) == (70, 128)
    assert memory.holders == (Holder(op="middle", size_bytes=70),)


def test_one_allocator_of_a_process_can_be_looked_at_alone() -> None:
    first, second = Allocator(0, "GPU_0_bfc"), Allocator(0, "GPU_1_bfc")
    first.take(10, 1, 100)
    second.take(20, 1, 7)
    lines = [Line(name="1", events=(*first.events, *second.events))]
    seen = [measured_memory(lines, steps((0, 99)), name) for name in ("GPU_1_bfc", None)]
    assert [each.holders[0].size_bytes for each in seen if each] == [7, 100]
    assert measured_memory(lines, steps((0, 99)), "GPU_2_bfc") is None


def test_nothing_is_known_where_no_step_reported_anything() -> None:
    allocator = Allocator(level_bytes=0)
    allocator.take(10, 1, 100)
    line = Line(name="thread", events=tuple(allocator.events))
    assert measured_memory([line], steps((20, 30))) is None
    assert measured_memory([], steps((20, 30))) is None
