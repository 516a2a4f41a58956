"""Memory of profiled steps, on allocations small enough to add up by hand."""

from __future__ import annotations

from placement_advisor.profile.steps import RecordedStep, StepWindows
from placement_advisor.profile.worker_steps import measured_memory
from placement_advisor.profile.xplane import Event, Line


class Allocator:
    """An allocator, and the events that it leaves behind."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.events: list[Event] = []

    def take(self, at_ns: int, place: int, size_bytes: int) -> None:
        self.sizes[place] = size_bytes
        self._note("MemoryAllocation", at_ns, size_bytes)

    def give_back(self, at_ns: int, place: int, size_bytes: int | None = None) -> None:
        self._note("MemoryDeallocation", at_ns, size_bytes or self.sizes.pop(place))

    def _note(self, what: str, at_ns: int, size_bytes: int) -> None:
        # The piece that is found can be larger than what was asked for.
        stats = {"requested_bytes": size_bytes, "allocation_bytes": 2 * size_bytes}
        self.events.append(Event(name=what, start_ns=at_ns, duration_ns=0, stats=stats))


def steps(*windows: tuple[int, int]) -> StepWindows:
    return StepWindows([RecordedStep(start_ns=start, end_ns=end) for start, end in windows])


def test_a_step_holds_what_it_took_and_has_not_given_back() -> None:
    allocator = Allocator()
    allocator.take(10, 1, 100)
    allocator.take(20, 2, 30)
    allocator.give_back(30, 1)
    allocator.take(40, 3, 50)
    allocator.give_back(50, 2)
    allocator.give_back(60, 3)
    memory = measured_memory([Line(name="thread", events=tuple(allocator.events))], steps((0, 99)))
    # a and what arrived.
    assert memory == (130,)


def test_events_of_several_threads_are_one_sequence() -> None:
    allocator = Allocator()
    allocator.take(10, 1, 100)
    allocator.give_back(20, 1)
    allocator.take(30, 1, 60)
    allocator.give_back(40, 1)
    first, second = allocator.events[::2], allocator.events[1::2]
    lines = [Line(name="1", events=tuple(first)), Line(name="2", events=tuple(second))]
    memory = measured_memory(lines, steps((0, 99)))
    assert memory == (100,)


def test_a_release_that_comes_after_the_step_does_not_raise_the_level() -> None:
    allocator = Allocator()
    for start_ns in (0, 100):
        allocator.take(start_ns + 10, 1, 128)
        allocator.give_back(start_ns + 55, 1)
    line = Line(name="thread", events=tuple(allocator.events))
    memory = measured_memory([line], steps((0, 50), (100, 150)))
    assert memory == (128, 128)


def test_what_was_there_before_the_profile_may_go_in_a_step() -> None:
    # An update takes a new piece for its variable and gives the old one back.
    allocator = Allocator()
    allocator.take(10, 7, 500)
    allocator.give_back(20, 3, 500)
    memory = measured_memory([Line(name="1", events=tuple(allocator.events))], steps((0, 99)))
    assert memory == (500,)


def test_each_step_counts_by_itself() -> None:
    allocator = Allocator()
    for step, size_bytes in enumerate([10, 900, 70]):
        allocator.take(100 * step + 10, 1, size_bytes)
        allocator.give_back(100 * step + 20, 1)
    line = Line(name="thread", events=tuple(allocator.events))
    memory = measured_memory([line], steps((0, 50), (100, 150), (200, 250)))
    assert memory == (10, 900, 70)


def test_nothing_is_known_where_no_step_reported_anything() -> None:
    allocator = Allocator()
    allocator.take(10, 1, 100)
    line = Line(name="thread", events=tuple(allocator.events))
    assert measured_memory([line], steps((20, 30))) == ()
    assert measured_memory([], steps((20, 30))) == ()
