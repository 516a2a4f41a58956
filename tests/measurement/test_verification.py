"""When two runs changed the same, and when a mistake would have shown: sums to redo by hand."""

from dataclasses import replace

import numpy as np
import pytest

from placement_advisor.measurement.verification import AppliedUpdate, StepResults, rounding, verify

STEPS = 2
# The last digit of a float near 1.
DIGIT = float(np.finfo(np.float32).eps)


def results(change, given=(), *, start=1.0, outputs=()):
    """A variable `w` that starts from a value and changes, and what its update got in each step."""
    before = np.full(np.shape(change), start, np.float32)
    after = (before + np.asarray(change, np.float32)).astype(np.float32)
    name, floats = "AssignSubVariableOp 0.0", [np.asarray(each, np.float32) for each in given or ()]
    rows = tuple(AppliedUpdate(update=name, step=i, value=each) for i, each in enumerate(floats))
    return StepResults(
        outputs=tuple(map(np.asarray, outputs)),
        before={"w": before},
        state={"w": after},
        given={"w": None if given is None else rows},
    )


def shown(reference, *runs):
    return [rounding(run, reference) for run in runs]


def found(ours, reference, rounded=None, **more):
    return verify(ours, reference, shown(reference, rounded or reference), STEPS, **more)


def test_a_change_is_compared_with_the_change_and_a_lost_or_late_one_is_found():
    reference = results([0.001, -0.002], None, start=100.0)
    off = found(results([0.001, 0.002], None, start=100.0), reference)
    assert off.wrong == "what was added to variable 'w'"
    assert off.wrong_variable == "w"
    # Four thousandths apart, and two thousandths large; to the last digit of 100.
    assert off.relative_difference == pytest.approx(2.0, rel=0.01)
    reference = results([1e-9], (2e-9, 1e-9))
    lost = replace(results([0.0], ()), given={"w": ()})
    assert found(lost, reference).wrong == "variable 'w', which other ops update,"
    assert not found(results([0.0], (2e-9, 1e-9)), reference).wrong
    reference = results([0.0], (3e-12, 2e-12))
    assert "step 1" in found(results([0.0], (3e-12, 3e-12)), reference).wrong


def test_a_variable_is_verified_only_where_each_of_its_updates_shows():
    def of(second):
        run = results([0.0], (3e-12, 2e-12))
        others = [
            replace(each, update="AssignAddVariableOp 0.0", value=np.float32([second]))
            for each in run.given["w"]
        ]
        return replace(run, given={"w": (*run.given["w"], *others)})

    assert not found(of(3e-12 * 1.00005), of(3e-12), of(3.03e-12)).unverified
    assert found(of(3e-12 * 1.0005), of(3e-12), of(3.03e-12)).unverified == ("w",)


@pytest.mark.parametrize("factor", [1.02, 0.98, 2.0, 0.0, -1.0])
def test_what_updates_are_given_is_compared_at_any_size(factor):
    reference = results([0.0], (3e-12, 2e-12))
    off = found(results([0.0], (3e-12 * factor, 2e-12 * factor)), reference)
    assert off.wrong.startswith("what step ")
    assert off.relative_difference == pytest.approx(abs(factor - 1), rel=1e-3)
    same = found(results([0.0], (3e-12, 2e-12)), reference)
    assert (same.wrong, same.unverified, same.variables) == ("", (), 1)


@pytest.mark.parametrize(("factor", "unverified"), [(1.00005, ()), (1.0005, ("w",))])
def test_what_agrees_is_verified_where_rounding_moves_it_more(factor, unverified):
    reference = results([0.0], (3e-12, 2e-12))
    rounded = results([0.0], (3.03e-12, 1.98e-12))
    ours = results([0.0], (3e-12 * factor, 2e-12 * factor))
    assert found(ours, reference, rounded).unverified == unverified
    # One step tells nothing of what is late.
    once = results([0.0], (3e-12, 2e-12 * 1.0005))
    assert found(once, reference, rounded).unverified == ("w",)


def in_both_steps(values):
    return results(np.zeros(len(values)), (values, values))


def _elements(few, others):
    """What two steps give to 200 elements, of which two and all others are multiplied."""
    values = np.tile([3e-12, -3e-12], 100)
    values[:2] *= few
    values[2:] *= others
    return in_both_steps(values)


@pytest.mark.parametrize(
    ("ours", "rounded", "unverified"),
    [
        # As where ties decide which samples a row of a table hears of.
        ((1.001, 1.0), (1.05, 1.0), ()),
        # All others have to show: ten times their rounding is twice the mistake to be found.
        ((1.001, 1.001), (1.5, 1.002), ("w",)),
        # Their own rounding does not explain this, and that of the two is no excuse.
        ((1.0, 1.02), (1.5, 1.0), ("w",)),
    ],
)
def test_a_hundredth_of_the_elements_may_be_up_to_rounding(ours, rounded, unverified):
    off = found(_elements(*ours), _elements(1.0, 1.0), _elements(*rounded))
    assert (off.wrong, off.unverified) == ("", unverified)


def test_more_than_a_hundredth_of_the_elements_may_not():
    ones = np.full(199, 3e-12)
    moved = np.concatenate([ones[:2] * 1.05, ones[2:]])
    runs = map(in_both_steps, (ones * 1.0001, ones, moved))
    assert found(*runs).unverified == ("w",)
    # Elements that nothing changes are not counted.
    assert found(_sparse(1.0002), _sparse(1.0), _sparse(1.05)).unverified == ("w",)


def _sparse(factor):
    """What two steps give to a thousand elements, ten of which change, and one is multiplied."""
    values = np.zeros(1_000)
    values[:10] = 3e-12
    values[0] *= factor
    return in_both_steps(values)


def test_what_any_of_several_roundings_explains_is_no_mistake():
    reference = results([0.0], (1.0, 2.0))
    ours, beyond = results([0.0], (1.03, 2.0)), results([0.0], (1.2, 2.0))
    moved, reordered = results([0.0], (1.001, 2.0)), results([0.0], (1.01, 2.0))
    assert found(ours, reference, moved).wrong
    assert not verify(ours, reference, shown(reference, moved, reordered), STEPS).wrong
    assert not verify(ours, reference, shown(reference, reordered, moved), STEPS).wrong
    assert verify(beyond, reference, shown(reference, moved, reordered), STEPS).wrong


@pytest.mark.parametrize("ours", [1e-9, 5e-9])
def test_what_is_zero_but_for_rounding_is_verified_where_it_is_exchanged(ours):
    reference, rounded = results([0.0], (1e-9, -1e-9)), results([0.0], (-1e-9, 2e-9))
    theirs = results([0.0], (-ours, ours))
    assert found(theirs, reference, rounded).unverified == ("w",)
    assert not found(theirs, reference, rounded, is_exchanged=True).unverified
    # What is ten times as large as its rounding is no zero, and what is far larger neither.
    of_one, rounded_one = results([0.0], (1e-8, -1e-8)), results([0.0], (0.9e-8, -0.9e-8))
    assert found(theirs, of_one, rounded_one, is_exchanged=True).unverified == ("w",)
    large = results([0.0], (1e-7, 1e-7))
    assert found(large, reference, rounded, is_exchanged=True).unverified == ("w",)


def test_a_change_that_is_rounding_does_not_show_and_is_no_mistake():
    reference = results([DIGIT], None)
    other = found(results([2 * DIGIT], None), reference)
    assert (other.wrong, other.unverified) == ("", ("w",))
    reference, rounded = results([0.1], None), results([0.105], None)
    other = found(results([0.11], None), reference, rounded)
    assert (other.wrong, other.unverified) == ("", ("w",))
    # Half a thousandth of it would leave a mistake of two hundredths to be seen.
    clear = results([0.10005], None)
    assert found(results([0.1002], None), reference, clear).unverified == ()
    assert found(results([0.102], None), reference, clear).wrong


def test_noise_is_verified_only_where_it_is_bit_by_bit_the_same():
    reference, rounded = results([DIGIT], (1e-9, 2e-9)), results([0.0], (-1e-9, 3e-9))
    assert found(reference, reference, rounded).unverified == ()
    for first in (2e-9, 3e-8):
        other = found(results([DIGIT], (first, 1e-9)), reference, rounded)
        assert (other.wrong, other.unverified) == ("", ("w",))


def test_a_slot_of_squares_of_noise_is_not_verified_and_wrong_only_if_it_is_far_off():
    # Gradients of rounding alone, one of them three times as large: RMSprop keeps their squares.
    reference, rounded = results([0.15], None), results([0.0], None)
    for far, is_wrong in ((2.3, False), (14.0, False), (16.0, True)):
        other = found(results([far], None), reference, rounded)
        assert (bool(other.wrong), other.unverified) == (is_wrong, ("w",))


def test_what_is_no_difference_of_numbers_is_compared_as_it_is():
    reference = results([0.0, 0.0], ())
    assert found(reference, reference).unverified == ()
    assert found(results([0.0, 0.1], ()), reference).wrong

    def counted(number):
        return StepResults(
            outputs=(), before={"n": np.int64(0)}, state={"n": np.int64(number)}, given={}
        )

    assert not found(counted(2), counted(2)).wrong
    assert found(counted(3), counted(2)).wrong == "what was added to variable 'n'"
    reference = results([0.1], None, outputs=[[4.0, 0.0]])
    assert not found(results([0.1], None, outputs=[[4.002, 0.002]]), reference).wrong
    assert found(results([0.1], None, outputs=[[4.0, 0.01]]), reference).wrong == "output 0"
    no_number = results([0.1], None, outputs=[[np.nan, 0.0]])
    assert found(no_number, reference).wrong == "output 0"
    assert found(results([0.1], None), results([0.1, 0.1], None)).wrong
    gone = StepResults(outputs=(), before={}, state={}, given={})
    assert found(gone, results([0.1], None)).wrong == "variable 'w', which is not there"
