"""Every finding fires where it should, and stays silent where it should, beside what is golden."""

from dataclasses import replace

import pytest
from machines import HOUR_NS, KEPT, LAPTOP, SERVER

from placement_advisor.machine.doctor_checks import State, check_all, next_command
from placement_advisor.machine.nvidia import Gpus
from placement_advisor.machine.this_machine import Cores


def found(facts, name):
    return [check for check in check_all(facts) if check.name == name]


def one(facts, name):
    (check,) = found(facts, name)
    return check


def test_a_machine_in_order_has_no_problem_and_every_problem_says_what_to_do():
    checks = check_all(LAPTOP)
    notes = [check.name for check in checks if check.state is not State.OK]
    assert notes == ["gpus"]
    assert next_command(LAPTOP, checks) == "advisor analyze MODEL.py"
    assert one(replace(LAPTOP, wanted_python=None), "python").state is State.OK

    for check in check_all(SERVER):
        assert check.action or check.state is not State.PROBLEM, check
        assert not check.blocks or check.state is State.PROBLEM


def with_cards(count, **gpus):
    return replace(SERVER, visible_gpus=count, gpus=replace(SERVER.gpus, **gpus))


@pytest.mark.parametrize(
    ("facts", "state", "finding", "action"),
    [
        (
            replace(LAPTOP, visible_gpus=2, gpus=Gpus(problem="no driver")),
            "problem",
            "no driver",
            "",
        ),
        (with_cards(4), "ok", "4 × Tesla V100-SXM2-16GB, 17.2 GB", ""),
        (SERVER, "note", "", "CUDA_VISIBLE_DEVICES"),  # Hidden ones.
        (with_cards(1, devices=SERVER.gpus.devices[:1], pairs=()), "note", "", "needs two"),
        # Only the system shows them.
        (replace(LAPTOP, visible_gpus=2), "note", "2 GPUs for TensorFlow to see", ""),
    ],
)
def test_cards_are_a_problem_where_the_driver_fails_and_noted_where_they_are_too_few(
    facts, state, finding, action
):
    check = one(facts, "gpus")
    assert check.state is State[state.upper()]
    assert finding in check.finding
    assert action in (check.action or "")


def test_libraries_matter_only_where_cards_are():
    assert found(LAPTOP, "cuda") == []
    assert one(SERVER, "cuda").state is State.NOTE
    assert found(replace(SERVER, has_cuda_libraries=True), "cuda") == []


def test_pairs_are_noted_where_they_are_far_from_one_another_or_not_known():
    assert one(with_cards(4, pairs=SERVER.gpus.pairs[:1]), "gpu links").state is State.OK
    assert one(with_cards(4, pairs=None), "gpu links").state is State.NOTE
    alone = with_cards(1, devices=SERVER.gpus.devices[:1], pairs=())
    assert found(LAPTOP, "gpu links") == found(alone, "gpu links") == []


@pytest.mark.parametrize(
    ("admins_profile", "has_sys_admin", "state"),
    [
        (True, False, State.PROBLEM),
        (True, True, State.OK),
        (False, False, State.OK),
        (False, None, State.OK),
        (None, True, State.OK),
        (None, False, State.NOTE),
        (True, None, State.NOTE),
    ],
)
def test_who_may_profile_is_either_everyone_or_an_administrator(
    admins_profile, has_sys_admin, state
):
    gpus = replace(SERVER.gpus, admins_profile=admins_profile)
    facts = replace(SERVER, gpus=gpus, has_sys_admin=has_sys_admin)
    assert one(facts, "gpu profiles").state is state
    assert found(replace(facts, gpus=Gpus()), "gpu profiles") == []


def test_one_core_is_a_problem_unless_there_are_two_cards():
    cores = Cores(machine=1, allowed=1, physical=1, quota=None)
    alone = replace(LAPTOP, cores=cores, calibrations=())
    assert one(alone, "cores").state is State.PROBLEM
    assert one(replace(alone, visible_gpus=2), "cores").state is State.NOTE
    # It blocks nothing: a simulation needs no second core, and a calibration could not run.
    assert not any(check.blocks for check in check_all(alone))
    assert next_command(alone, check_all(alone)) == "advisor analyze MODEL.py"


@pytest.mark.parametrize(
    ("free", "state", "blocks"),
    [
        (4_000_000_000, State.OK, False),
        (3_999_999_999, State.NOTE, False),
        (750_000_000, State.NOTE, False),
        (749_999_999, State.PROBLEM, True),
    ],
)
def test_too_little_memory_for_tensorflow_blocks(free, state, blocks):
    check = one(replace(LAPTOP, available_memory_bytes=free), "memory")
    assert (check.state, check.blocks) == (state, blocks)


def test_workers_that_anyone_can_reach_are_not_run():
    refused = replace(LAPTOP, has_private_network=False)
    assert next_command(refused, check_all(refused)) == "advisor analyze MODEL.py --no-run"
    on_cards = replace(refused, visible_gpus=2, calibrations=())
    assert next_command(on_cards, check_all(on_cards)) == "advisor calibrate"


def test_a_calibration_shows_no_figures_that_noise_hid():
    kept = replace(KEPT, small_copy=None, large_copy=None, quantum_ns=0)
    finding = one(replace(LAPTOP, calibrations=(kept,)), "calibration").finding
    assert finding.endswith("old: step overhead 350 µs")


@pytest.mark.parametrize(
    ("age_ns", "words"),
    [
        (10**9, "less than a minute"),
        (60 * 10**9, "1 minute"),
        (HOUR_NS, "1 hour"),
        (47 * HOUR_NS, "1 day"),
        (48 * HOUR_NS, "2 days"),
    ],
)
def test_ages_are_told_in_their_largest_unit(age_ns, words):
    facts = replace(LAPTOP, calibrations=(replace(KEPT, age_ns=age_ns),))
    assert f", {words} old" in one(facts, "calibration").finding


def test_without_a_calibration_that_holds_one_is_made_next():
    stale = replace(LAPTOP, calibrations=(replace(KEPT, holds=False),))
    assert one(stale, "calibration").state is State.NOTE
    assert "not used" in one(stale, "calibration").finding
    for facts in (stale, replace(LAPTOP, calibrations=())):
        assert next_command(facts, check_all(facts)) == "advisor calibrate"

    both = replace(LAPTOP, calibrations=(KEPT, replace(KEPT, holds=False)))
    fresh, stale = found(both, "calibration")
    assert fresh.state is State.OK
    assert stale.action is None
