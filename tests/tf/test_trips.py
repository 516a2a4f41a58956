"""How often a loop runs: by hand, and against a loop that counts."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import Ops, nodes_of

from placement_advisor.tf.trace.loops import Induction, trips_of

_COMPARE = {
    "Less": operator.lt,
    "LessEqual": operator.le,
    "Greater": operator.gt,
    "GreaterEqual": operator.ge,
}


def _trips(ops: Ops, known: dict[str, tuple[int, int]]) -> int | None:
    """Return trips while the last op holds; ``known`` gives start and step of tensors."""
    inductions = {name: Induction(start=a, step=b) for name, (a, b) in known.items()}
    return trips_of(nodes_of(ops)[-1], lambda node, _: inductions.get(node.name))


def _leaves(*names: str) -> Ops:
    return {name: ("Placeholder", []) for name in names}


def test_trips_end_with_the_first_condition_that_fails():
    # i = 0, 1, … is below 10 ten times; j = 4, 7, 10 is not above 10 three times.
    ops = {
        **_leaves("i", "j", "ten"),
        "below": ("Less", ["i", "ten"]),
        "not_above": ("LessEqual", ["j", "ten"]),
        "both": ("LogicalAnd", ["below", "not_above"]),
        "go": ("Identity", ["both"]),
    }
    assert _trips(ops, {"i": (0, 1), "j": (4, 3), "ten": (10, 0)}) == 3
    assert _trips(ops, {"i": (0, 1), "ten": (10, 0)}) is None
    # What fails at once ends the loop whatever the other says.
    assert _trips(ops, {"i": (12, 1), "ten": (10, 0)}) == 0


@pytest.mark.parametrize(("start", "step", "limit", "trips"), [(0, 1, 5, 5), (9, -2, 0, 5)])
def test_a_range_of_autograph_tests_the_sign_of_its_step(start, step, limit, trips):
    ops = {
        **_leaves("i", "limit", "delta", "zero"),
        "up": ("GreaterEqual", ["delta", "zero"]),
        "below": ("Less", ["i", "limit"]),
        "going_up": ("LogicalAnd", ["up", "below"]),
        "down": ("Less", ["delta", "zero"]),
        "above": ("Greater", ["i", "limit"]),
        "going_down": ("LogicalAnd", ["down", "above"]),
        "go": ("LogicalOr", ["going_up", "going_down"]),
    }
    known = {"i": (start, step), "limit": (limit, 0), "delta": (step, 0), "zero": (0, 0)}
    assert _trips(ops, known) == trips


def test_a_loop_without_an_end_or_with_an_unknown_condition_has_unknown_trips():
    ops = {**_leaves("i", "ten"), "go": ("Less", ["i", "ten"])}
    assert _trips(ops, {"i": (0, 0), "ten": (10, 0)}) is None
    assert _trips(ops, {"i": (0, -1), "ten": (10, 0)}) is None
    assert _trips({**_leaves("data"), "go": ("Any", ["data"])}, {}) is None


@given(
    kind=st.sampled_from(sorted(_COMPARE)),
    start=st.integers(-30, 30),
    step=st.integers(-5, 5),
    limit=st.integers(-30, 30),
)
def test_trips_are_those_of_a_loop_that_counts(kind, start, step, limit):
    ops = {**_leaves("i", "limit"), "go": (kind, ["i", "limit"])}
    counted, i = 0, start
    while _COMPARE[kind](i, limit) and counted < 100:
        counted, i = counted + 1, i + step
    expected = None if counted == 100 else counted
    assert _trips(ops, {"i": (start, step), "limit": (limit, 0)}) == expected
