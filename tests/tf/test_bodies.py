"""Loops and conditionals are priced by their bodies: by hand."""

from __future__ import annotations

from typing import Any

import pytest

from placement_advisor.processes.calls import RemoteModule

traced_bodies = RemoteModule("traced_bodies")
# (2, 3) times (3, 3): 2·3 sums of 3 products, each a multiplication and an addition.
PRODUCT_FLOPS = 2 * 3 * 3 * 2
# Counting to four costs a comparison and an addition per trip.
TRIP_FLOPS = PRODUCT_FLOPS + 2


@pytest.fixture
def composites(child):
    def found(step: str) -> dict[str, Any]:
        return child.call(traced_bodies.composites, step)

    return found


def test_a_loop_takes_its_body_and_condition_times_its_trips(composites):
    ((trips, flops, bytes_accessed, members),) = composites("four_products").values()
    assert trips == 4
    assert 4 * PRODUCT_FLOPS < flops <= 4 * (TRIP_FLOPS + 2)
    # A product reads (2, 3) and (3, 3) and writes (2, 3) floats; counters are a few bytes more.
    assert 4 * 4 * (6 + 9 + 6) <= bytes_accessed <= 4 * (4 * (6 + 9 + 6) + 100)
    assert any(name.endswith("matmul") or name.endswith("MatMul") for name in members)


def test_the_trips_of_a_range_are_known(composites):
    ((trips, flops, _, _),) = composites("five_products_in_a_range").values()
    assert trips == 5
    assert 5 * PRODUCT_FLOPS < flops < 6 * PRODUCT_FLOPS + 5 * 20


def test_the_loop_of_a_gradient_runs_as_often_as_its_loop(composites):
    found = composites("four_products_with_gradient")
    assert len(found) == 2
    assert [trips for trips, *_ in found.values()] == [4, 4]
    forward, backward = (flops for _, flops, *_ in found.values())
    assert 4 * PRODUCT_FLOPS < forward < 4 * 2 * PRODUCT_FLOPS
    # A loop's gradient computes those of all that it reads: of x and of the variable.
    assert 4 * 2 * PRODUCT_FLOPS < backward < 4 * 3 * PRODUCT_FLOPS


def test_a_loop_that_ends_by_its_data_has_unknown_trips_and_work(composites):
    ((trips, flops, bytes_accessed, _),) = composites("until_small").values()
    assert (trips, flops, bytes_accessed) == (None, None, None)


def test_a_conditional_takes_its_most_expensive_branch(composites):
    ((trips, flops, _, members),) = composites("one_or_two_products").values()
    assert (trips, flops) == (None, 2 * PRODUCT_FLOPS)
    assert len([name for name in members if "matmul" in name.lower()]) >= 3


def test_a_conditional_with_a_branch_of_unknown_work_has_unknown_work(composites):
    ((trips, flops, bytes_accessed, _),) = composites("one_product_or_until_small").values()
    assert (trips, flops, bytes_accessed) == (None, None, None)


def test_what_nobody_reads_within_a_loop_does_not_run(composites):
    ((trips, flops, _, members),) = composites("product_that_nobody_reads").values()
    assert trips == 4
    # Six sums, and what counting takes.
    assert 4 * 6 < flops < 4 * PRODUCT_FLOPS
    assert not any(name.lower().endswith("matmul") for name in members)


def test_a_loop_whose_values_grow_has_unknown_work(composites):
    ((trips, _, bytes_accessed, _),) = composites("doubled_rows").values()
    assert (trips, bytes_accessed) == (4, None)


def test_a_loop_in_a_loop_is_multiplied_out(composites):
    ((trips, flops, _, members),) = composites("loop_in_a_loop").values()
    assert trips == 3
    assert 12 * PRODUCT_FLOPS < flops <= 12 * (TRIP_FLOPS + 2) + 3 * 4
    assert any("matmul" in name.lower() for name in members)


def test_a_function_that_takes_any_batch_is_priced_at_the_batch_it_is_given(composites):
    ((trips, flops, _, _),) = composites("called_with_any_batch").values()
    assert trips == 4
    assert 4 * PRODUCT_FLOPS < flops <= 4 * (TRIP_FLOPS + 2)


def test_a_conditional_stands_on_a_gpu_whose_host_runs_what_has_no_kernel(child):
    found = child.call(traced_bodies.inside, "marked_twice")
    ((inside, kinds),) = found.values()
    assert kinds == ["CPU", "GPU"]
    ops, copies, copied_bytes = inside
    # To the host, a truth value; from it, three. (Indices and shape are constants.)
    assert (copies, copied_bytes) == (2, 1 + 3)
    assert 4 <= ops <= 8


def test_what_a_loop_runs_counts_for_each_trip(child):
    once = child.call(traced_bodies.inside, "marked_twice")
    ((branch, _),) = once.values()
    ((inside, kinds),) = child.call(traced_bodies.inside, "marked_in_each_trip").values()
    assert kinds == ["CPU", "GPU"]
    assert inside[1:] == (4 * branch[1], 4 * branch[2])
    assert inside[0] > 4 * branch[0]


def test_what_a_loop_without_known_trips_runs_is_not_known(child):
    found = child.call(traced_bodies.inside, "until_small")
    assert [inside for inside, _ in found.values()] == [None]
