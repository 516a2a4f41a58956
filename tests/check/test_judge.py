"""Which differences fail: a case in which each rule fires, and one in which it stays silent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import ALIKE, ONE, TWO, VERSIONS, cut, layer, record, records

from placement_advisor.check.judge import MAX_CULPRITS, Code, Judgement, Limits, Place, judge
from placement_advisor.check.placements import Freedom
from placement_advisor.check.record import Standing

if TYPE_CHECKING:
    from placement_advisor.check.record import Record

MOVED = record(
    placed="c0",
    layers={"lower": layer("11", ONE), "upper": layer("22", TWO, backward=ONE)},
    step_us=1_001,
)
OTHER_VERSIONS = {
    "hardware": replace(VERSIONS, hardware="2xV100-NVLink", devices="11ff"),
    "TensorFlow": replace(VERSIONS, tensorflow="2.22.0"),
    "advisor": replace(VERSIONS, advisor="9.9"),
    "other figures of the hardware": replace(VERSIONS, devices="11ff"),
}


def judged(
    after: Record,
    before: Record | None = record(),  # noqa: B008 - it is frozen
    *,
    freedom: Freedom = Freedom.NONE,
    shortages: tuple[str, ...] = (),
    **limits: Any,
) -> Judgement:
    return judge(
        before,
        after,
        Limits(**limits),
        alike=ALIKE,
        freedom=freedom,
        shortages=shortages,
        place_of={"upper": Place("m.py", 7), "lower/Relu:0": Place("m.py", 3)}.get,
    )


def changed(**changes: Any) -> Record:
    """Return a step that is another graph."""
    return record(placed="c0", graph="c1", **changes)


def codes(found: Judgement) -> list[Code]:
    return [problem.code for problem in found.problems]


def test_the_same_step_passes_and_is_not_compared() -> None:
    assert judged(record()) == Judgement(problems=(), notes=(), difference=None)


def test_a_step_that_is_the_same_but_for_names_is_not_compared() -> None:
    renamed = record(
        layers={"x": layer("11", TWO), "y": layer("22", ONE)}, cuts=(cut("x:0", 7),), copies=9
    )
    assert judged(renamed) == Judgement(problems=(), notes=(), difference=None)


def test_a_graph_that_changed_within_all_tolerances_passes() -> None:
    after = changed(step_us=1_050, bytes_across=1_010_000, memory_bytes={
        ONE: {"variables": 945_000_000}, TWO: {"variables": 760_000_000}})  # fmt: skip
    found = judged(after)
    assert (found.problems, found.notes) == ((), ())
    assert found.difference is not None


def test_a_model_that_is_not_locked_says_how_to_lock_it() -> None:
    found = judged(record(), None)
    assert codes(found) == [Code.NOT_LOCKED]
    assert "advisor check --update" in found.problems[0].action


def test_a_model_that_is_not_locked_is_held_to_its_budgets() -> None:
    found = judged(record(), None, max_transfer_bytes=999_999, shortages=("GPU:0 is full",))
    assert codes(found) == [Code.OUT_OF_MEMORY, Code.OVER_BUDGET, Code.NOT_LOCKED]


def test_a_layer_that_moved_is_named_with_its_line() -> None:
    found = judged(MOVED)
    assert codes(found) == [Code.MOVED]
    (problem,) = found.problems
    assert problem.culprits == ("upper: backward pass GPU:1 -> GPU:0 (m.py:7)",)
    assert problem.place == Place("m.py", 7)
    assert problem.what == "1 layer runs on another device than before"


def test_two_layers_that_moved_are_counted() -> None:
    layers = {"lower": layer("11", ONE, backward=TWO), "upper": layer("22", TWO, backward=ONE)}
    (problem,) = judged(replace(MOVED, layers=layers)).problems
    assert problem.what == "2 layers run on another device than before"


def test_a_move_for_the_better_is_only_told() -> None:
    found = judged(replace(MOVED, step_us=900))
    assert found.problems == ()
    assert found.notes[0].startswith("moved: upper: backward pass")


def test_a_move_that_costs_a_copy_is_not_for_the_better() -> None:
    assert codes(judged(replace(MOVED, step_us=900, copies=2))) == [Code.MOVED, Code.COPIES]


def test_a_move_that_costs_nothing_is_only_told() -> None:
    assert judged(replace(MOVED, step_us=1_000)).problems == ()


@pytest.mark.parametrize("freedom", [Freedom.RULE, Freedom.SEARCH])
def test_a_rule_or_a_search_may_move_layers(freedom: Freedom) -> None:
    found = judged(replace(MOVED, graph="c1"), freedom=freedom)
    assert found.problems == ()
    assert found.notes


def test_an_unchanged_graph_is_no_matter_how_a_rule_places_it() -> None:
    assert judged(replace(MOVED, copies=9), freedom=Freedom.RULE).difference is None
    assert codes(judged(replace(MOVED, copies=9), freedom=Freedom.NONE)) == [
        Code.MOVED,
        Code.COPIES,
    ]


def test_another_placement_in_the_settings_is_compared() -> None:
    assert judged(record(placement="towers")).difference is not None


def test_more_copies_fail_and_fewer_are_told() -> None:
    more = changed(copies=3, cuts=(cut("lower/Relu:0", 1_000_000), cut("lower/Relu:0", 500)))
    (problem,) = judged(more).problems
    assert problem.code is Code.COPIES
    assert problem.what == "+2 copies per step (1 -> 3)"
    assert problem.culprits == ("lower/Relu:0 GPU:0 -> GPU:1 +500 B (m.py:3)",)
    assert problem.place == Place("m.py", 3)
    fewer = judged(changed(copies=0, cuts=()))
    assert (fewer.problems, fewer.notes) == ((), ("better: -1 copies per step",))


def test_bytes_across_have_a_tolerance() -> None:
    assert codes(judged(changed(bytes_across=1_010_000))) == []
    (problem,) = judged(changed(bytes_across=1_010_001)).problems
    assert problem.code is Code.BYTES
    assert problem.what == "+10.0 kB across devices per step (1.00 MB -> 1.01 MB)"
    assert judged(changed(bytes_across=500_000)).notes == ("better: -500 kB across per step",)


def test_bytes_where_none_crossed_fail() -> None:
    before = record(cuts=(), copies=0, bytes_across=0)
    assert codes(judged(changed(), before)) == [Code.COPIES, Code.BYTES]


def test_a_tensor_of_unknown_size_is_said_to_be_one() -> None:
    (problem,) = judged(changed(copies=2, cuts=(*record().cuts, cut("b", None)))).problems
    assert problem.culprits == ("b GPU:0 -> GPU:1 of unknown size",)


def test_a_slower_step_fails_beyond_its_tolerance_and_names_what_grew() -> None:
    layers = {"lower": layer("11", ONE), "upper": layer("23", TWO, busy_us=160)}
    assert codes(judged(changed(step_us=1_050))) == []
    (problem,) = judged(changed(step_us=1_060, layers=layers)).problems
    assert problem.code is Code.SLOWER
    assert problem.what == (
        "the predicted step takes 6.0% longer (1.00 ms -> 1.06 ms, 5% are allowed)"
    )
    assert problem.culprits == ("upper +60.0 µs (m.py:7)",)
    assert codes(judged(changed(step_us=1_060), max_step_regression=0.06)) == []
    faster = judged(changed(step_us=900))
    assert faster.notes == ("better: the predicted step takes 10.0% less (1.00 ms -> 900 µs)",)


def test_the_tolerance_of_the_settings_may_be_none_at_all() -> None:
    assert codes(judged(changed(step_us=1_001), max_step_regression=0.0)) == [Code.SLOWER]
    assert codes(judged(changed(step_us=1_000), max_step_regression=0.0)) == []


def test_more_memory_fails_on_the_device_that_needs_it() -> None:
    held = {"variables": 900_000_000, "activations": 50_000_000}
    (problem,) = judged(changed(memory_bytes={**record().memory_bytes, ONE: held})).problems
    assert problem.code is Code.MEMORY
    assert problem.what == "GPU:0: +50.0 MB of peak memory (900 MB -> 950 MB)"
    assert problem.culprits == ("+50.0 MB activations",)
    less = judged(changed(memory_bytes={**record().memory_bytes, ONE: {"variables": 1}}))
    assert less.notes == ("better: GPU:0 has a peak of 1 B, not 900 MB",)


def test_an_op_without_a_kernel_fails() -> None:
    (problem,) = judged(changed(on_host={"upper": ("AsString",)})).problems
    assert problem.code is Code.NO_KERNEL
    assert "AsString in upper" in problem.what
    assert problem.place == Place("m.py", 7)


def test_a_verdict_that_fell_fails_and_one_that_rose_is_told() -> None:
    fell = changed(standing=Standing.SINGLE, single_step_us=1_000)
    (problem,) = judged(fell).problems
    assert problem.code is Code.STANDING
    assert problem.what == (
        "the placement was predicted to be faster than one device, now no faster than one "
        "device: 1.00 ms against 1.00 ms on one device"
    )
    rose = judged(changed(), record(standing=Standing.CANNOT_TELL))
    assert rose.problems == ()
    assert "now faster than one device" in rose.notes[0]


def test_a_verdict_that_fell_by_a_hair_is_told() -> None:
    found = judged(changed(standing=Standing.CANNOT_TELL, single_step_us=1_490))
    assert found.problems == ()
    assert "within doubt of one device" in found.notes[0]


def test_memory_that_does_not_suffice_fails_whatever_was_locked() -> None:
    found = judged(record(), shortages=("GPU:0 needs 20 GB, has 16",))
    assert codes(found) == [Code.OUT_OF_MEMORY]
    assert found.problems[0].what == "GPU:0 needs 20 GB, has 16"


def test_budgets_hold_to_the_byte_whatever_was_locked() -> None:
    assert codes(judged(record(), max_transfer_bytes=1_000_000, max_peak_bytes=900_000_000)) == []
    transfer, memory = judged(
        record(), max_transfer_bytes=999_999, max_peak_bytes=899_999_999
    ).problems
    assert transfer.culprits == ("lower/Relu:0 GPU:0 -> GPU:1 1.00 MB",)
    assert transfer.place == Place("m.py", 3)
    assert memory.what == "GPU:0 needs 900 MB of memory, max_peak_memory is 900 MB"
    assert memory.culprits == ("900 MB variables",)


def test_a_budget_of_nothing_lets_nothing_cross() -> None:
    assert codes(judged(record(), max_transfer_bytes=0)) == [Code.OVER_BUDGET]
    assert codes(judged(record(copies=0, cuts=(), bytes_across=0), max_transfer_bytes=0)) == []


@pytest.mark.parametrize("what", OTHER_VERSIONS)
def test_times_of_other_versions_are_not_compared_and_all_else_is(what: str) -> None:
    versions = OTHER_VERSIONS[what]
    slower = changed(versions=versions, step_us=9_000, standing=Standing.SINGLE)
    found = judged(slower)
    assert found.problems == ()
    assert found.notes[0].startswith("predicted times are not comparable: locked with ")
    assert what in found.notes[0]
    assert "`advisor check --update`" in found.notes[0]
    worse = replace(
        MOVED, versions=versions, copies=2, bytes_across=9_000_000,
        memory_bytes={ONE: {"variables": 9_000_000_000}, TWO: {}},
    )  # fmt: skip
    assert codes(judged(worse)) == [Code.MOVED, Code.COPIES, Code.BYTES, Code.MEMORY]
    assert codes(judged(record(versions=versions), max_transfer_bytes=5)) == [Code.OVER_BUDGET]


def test_a_move_between_versions_is_for_the_better_if_less_crosses() -> None:
    moved = replace(MOVED, versions=OTHER_VERSIONS["TensorFlow"], step_us=900)
    assert codes(judged(moved)) == [Code.MOVED]
    assert judged(replace(moved, bytes_across=999_999)).problems == ()


def test_what_is_not_comparable_is_told_with_the_locked_version_first() -> None:
    found = judged(changed(versions=OTHER_VERSIONS["TensorFlow"]))
    assert "locked with TensorFlow 2.21.0, now 2.22.0. All else" in found.notes[0]


def test_a_search_is_held_to_copies_where_times_do_not_compare() -> None:
    after = changed(copies=2)
    assert judged(after, freedom=Freedom.SEARCH).problems == ()
    other = replace(after, versions=OTHER_VERSIONS["TensorFlow"])
    assert codes(judged(other, freedom=Freedom.SEARCH)) == [Code.COPIES]


def test_a_search_that_found_a_slower_step_is_told_why() -> None:
    after = changed(copies=2, step_us=2_000)
    assert codes(judged(after, freedom=Freedom.SEARCH)) == [Code.SLOWER, Code.COPIES]


def test_no_more_culprits_are_named_than_anyone_reads() -> None:
    cuts = tuple(cut(f"t{i}", 100 - i) for i in range(12))
    (problem,) = judged(changed(copies=13, cuts=(*record().cuts, *cuts))).problems
    assert len(problem.culprits) == MAX_CULPRITS + 1
    assert problem.culprits[-1] == "7 more"


def test_renamed_layers_are_told() -> None:
    after = changed(layers={"below": layer("11", ONE), "upper": layer("22", TWO)})
    assert judged(after).notes == ("renamed, which is no change: lower is below now",)


@given(records, records, st.sampled_from(Freedom))
def test_any_two_records_can_be_judged(before: Record, after: Record, freedom: Freedom) -> None:
    found = judged(after, before, freedom=freedom)
    assert all(problem.what and problem.action for problem in found.problems)


@given(records, st.sampled_from(Freedom))
def test_no_step_fails_against_itself(found: Record, freedom: Freedom) -> None:
    assert judged(found, found, freedom=freedom).problems == ()
    # Nor as another graph of which nothing is known but that all else is the same.
    assert judged(replace(found, placed="?", graph="?"), found, freedom=freedom).problems == ()
