"""What a trial decides, and what is said of a training."""

from __future__ import annotations

import pytest

from placement_advisor.tf.training.trial import Bill, TrainingTrial

_MS = 1e-3


def _tried(own_s: list[float], placed_s: list[float], steps: int = 20) -> TrainingTrial:
    """Return a trial in which steps take these times, over and over; the first of a turn 1 s."""
    trial = TrainingTrial(steps)
    taken = {False: 0, True: 0}
    last = None
    while not trial.is_over:
        is_placed = trial.is_placed
        times = placed_s if is_placed else own_s
        if last is not is_placed or trial._turn is None:
            trial.took(1.0)
        else:
            trial.took(times[taken[is_placed] % len(times)])
            taken[is_placed] += 1
        last = is_placed
    return trial


def test_both_take_turns_in_pairs_whose_order_changes_and_first_steps_do_not_count():
    trial = TrainingTrial(20)
    turns = []
    for _ in range(8):
        turns.append(trial.is_placed)
        for seconds in (1.0, 2.0, 2.0):
            assert trial.is_placed == turns[-1]
            trial.took(seconds)
    assert turns == [False, True, True, False, False, True, True, False]
    assert (trial.own_ns, trial.placed_ns) == (2e9, 2e9)


@pytest.mark.parametrize("steps", [1, 4, 10, 20, 45])
def test_as_many_steps_are_counted_each_way_as_were_asked_for(steps):
    trial = _tried([4 * _MS], [3 * _MS], steps)
    assert abs(trial.counted - steps) <= 5
    assert trial.speedup == pytest.approx(4 / 3)
    assert (trial.interval is None) == (steps < 8)


def test_turns_that_follow_each_other_are_compared_so_that_a_slow_while_meets_both():
    slow_while = [1 * _MS] * 10 + [5 * _MS] * 10
    trial = _tried(slow_while, [1.2 * each for each in slow_while])
    assert trial.speedup == pytest.approx(1 / 1.2)
    found = trial.interval
    assert found is not None
    assert found.high < 1


def test_the_bill_says_what_ran_what_it_takes_and_what_it_saved():
    bill = Bill(label="towers", is_tried=True, placed_steps=2_000, own_steps=30, other_steps=1)
    bill.ready_s = 2.0
    bill.trial = _tried([30 * _MS], [20 * _MS])
    assert bill.told() == (
        "2,000 steps with towers, 30 of your own in the trial, 1 of your own on other batches or "
        "fetches: about 20 s saved, 2.00 s spent on getting ready (a step takes 20.0 ms with "
        "towers and 30.0 ms with your own (1.50×, 95 % interval 1.50–1.50; 20 steps each, in "
        "turns))"
    )
    assert bill.told(so_far=True).endswith("about 20 s saved, 2.00 s spent on getting ready")
    assert bill.decision().startswith("trains with towers from here on: a step takes 20.0 ms")


@pytest.mark.parametrize(
    ("bill", "end"),
    [
        (
            Bill(label="towers", is_tried=True),
            "trained as it is: no step that towers is for was seen",
        ),
        (Bill(label="towers", is_tried=True, why_not="another graph"), "as it is: another graph"),
        (
            Bill(label="towers", is_tried=True, placed_steps=1),
            "1 step with towers; the training was too short for a trial, so the saving is unknown",
        ),
        (
            Bill(label="towers", is_tried=False, placed_steps=12),
            "12 steps with towers; no trial, so the saving is unknown",
        ),
        (
            Bill(
                label="towers",
                is_tried=True,
                placed_steps=30,
                own_steps=30,
                trial=_tried([20 * _MS], [30 * _MS]),
            ),
            "trained as it is: towers was no faster in the trial",
        ),
    ],
)
def test_nothing_is_said_to_be_saved_that_nobody_has_seen(bill, end):
    assert bill.told().endswith(end)
