"""Every finding fires where it should and stays silent where it should."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from machines import HOUR_NS, KEPT, LAPTOP, SERVER

from placement_advisor.machine.machine_checks import Check, State, check_all, next_command
from placement_advisor.machine.machine_facts import Package
from placement_advisor.machine.nvidia import Gpus
from placement_advisor.machine.this_machine import Cores, OtherWork

if TYPE_CHECKING:
    from placement_advisor.machine.machine_facts import Facts


def found(facts: Facts, name: str) -> list[Check]:
    return [check for check in check_all(facts) if check.name == name]


def one(facts: Facts, name: str) -> Check:
    (check,) = found(facts, name)
    return check


def test_a_machine_in_order_has_no_problem_and_analyses_next() -> None:
    checks = check_all(LAPTOP)
    notes = [check.name for check in checks if check.state is not State.OK]
    assert notes == ["gpus"]
    assert next_command(LAPTOP, checks) == "advisor analyze MODEL.py"


def test_a_python_that_is_not_wanted_is_a_problem() -> None:
    assert one(LAPTOP, "python").state is State.OK
    check = one(replace(LAPTOP, python_version="3.14.1"), "python")
    assert check.state is State.PROBLEM
    assert ">=3.11,<3.14" in check.finding
    assert one(replace(LAPTOP, wanted_python=None), "python").state is State.OK


def test_a_missing_tensorflow_blocks_and_is_installed_next() -> None:
    facts = replace(LAPTOP, packages=(Package(name="tensorflow", version=None, wanted=">=2.21"),))
    check = one(facts, "tensorflow")
    assert check.blocks
    assert next_command(facts, check_all(facts)) == "pip install 'tensorflow>=2.21'"


def test_a_missing_viewer_is_a_problem_that_blocks_nothing() -> None:
    facts = replace(LAPTOP, packages=(Package(name="tensorboard", version=None, wanted=None),))
    check = one(facts, "tensorboard")
    assert (check.state, check.blocks) == (State.PROBLEM, False)
    assert check.action == "pip install 'tensorboard'"


def test_a_package_of_a_wrong_version_names_who_wants_another() -> None:
    wrong = Package(name="protobuf", version="8.1", wanted=">=6", unmet=(("tensorflow", "<8"),))
    check = one(replace(LAPTOP, packages=(wrong,)), "protobuf")
    assert (check.state, check.blocks) == (State.PROBLEM, False)
    assert check.finding == "8.1; tensorflow wants <8"
    assert check.action == "pip install 'protobuf>=6,<8', then pip check"
    assert found(replace(LAPTOP, packages=(wrong,)), "packages") == []


def test_without_the_plugin_there_is_no_profile_tab() -> None:
    assert one(LAPTOP, "profile tab").state is State.OK
    assert one(replace(LAPTOP, has_profile_plugin=False), "profile tab").state is State.PROBLEM


def test_a_driver_that_does_not_answer_is_a_problem() -> None:
    check = one(replace(LAPTOP, visible_gpus=2, gpus=Gpus(problem="no driver")), "gpus")
    assert check.state is State.PROBLEM
    assert "no driver" in check.finding


def test_cards_that_are_all_visible_are_fine_and_hidden_ones_are_noted() -> None:
    all_four = replace(SERVER, visible_gpus=4)
    assert one(all_four, "gpus").state is State.OK
    assert "4 × Tesla V100-SXM2-16GB, 17.2 GB" in one(all_four, "gpus").finding
    hidden = one(SERVER, "gpus")
    assert hidden.state is State.NOTE
    assert hidden.action is not None
    assert "CUDA_VISIBLE_DEVICES" in hidden.action


def test_one_card_is_too_few_for_a_split() -> None:
    gpus = replace(SERVER.gpus, devices=SERVER.gpus.devices[:1], pairs=())
    check = one(replace(SERVER, visible_gpus=1, gpus=gpus), "gpus")
    assert check.state is State.NOTE
    assert check.action is not None
    assert "needs two" in check.action
    assert found(replace(SERVER, visible_gpus=1, gpus=gpus), "gpu links") == []


def test_cards_that_only_the_system_shows_are_counted() -> None:
    check = one(replace(LAPTOP, visible_gpus=2), "gpus")
    assert check.state is State.NOTE
    assert check.finding == "2 GPUs for TensorFlow to see"


def test_libraries_matter_only_where_cards_are() -> None:
    assert found(LAPTOP, "cuda") == []
    assert one(SERVER, "cuda").state is State.NOTE
    assert found(replace(SERVER, has_cuda_libraries=True), "cuda") == []


def test_pairs_are_told_by_what_lies_between_them() -> None:
    check = one(SERVER, "gpu links")
    assert check.state is State.NOTE
    assert check.finding == (
        "NVLink: 0–1 NV12, 2–3 NV12; across sockets: 0–2 SYS, 0–3 SYS; PCIe: 1–2 PHB; "
        "unknown: 1–3 C2C"
    )
    assert check.action is not None
    near = replace(SERVER.gpus, pairs=SERVER.gpus.pairs[:1] if SERVER.gpus.pairs else None)
    assert one(replace(SERVER, gpus=near), "gpu links").state is State.OK
    unknown = replace(SERVER, gpus=replace(SERVER.gpus, pairs=None))
    assert one(unknown, "gpu links").state is State.NOTE
    assert found(LAPTOP, "gpu links") == []


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
    admins_profile: bool | None, has_sys_admin: bool | None, state: State
) -> None:
    gpus = replace(SERVER.gpus, admins_profile=admins_profile)
    facts = replace(SERVER, gpus=gpus, has_sys_admin=has_sys_admin)
    assert one(facts, "gpu profiles").state is state
    assert found(replace(facts, gpus=Gpus()), "gpu profiles") == []


def test_cores_say_why_there_are_no_more() -> None:
    assert one(LAPTOP, "cores").finding == "2 cores for devices, one each"
    check = one(SERVER, "cores")
    assert check.finding.startswith(
        "1 core for devices, one each: affinity allows 16 of 64 CPUs, 16 CPUs are threads of "
        "8 cores, the container's quota is 1"
    )


def test_one_core_is_a_problem_unless_there_are_two_cards() -> None:
    cores = Cores(machine=1, allowed=1, physical=1, quota=None)
    alone = replace(LAPTOP, cores=cores, calibrations=())
    assert one(alone, "cores").state is State.PROBLEM
    assert one(replace(alone, visible_gpus=2), "cores").state is State.NOTE
    # It blocks nothing: a simulation needs no second core, and a calibration could not run.
    assert not any(check.blocks for check in check_all(alone))
    assert next_command(alone, check_all(alone)) == "advisor analyze MODEL.py"


@pytest.mark.parametrize(
    ("cores", "load", "state"),
    [(2, 0.49, State.OK), (2, 0.5, State.NOTE), (8, 6.0, State.OK), (8, 6.5, State.NOTE)],
)
def test_only_work_that_takes_a_device_s_core_is_noted(
    cores: int, load: float, state: State
) -> None:
    here = Cores(machine=cores, allowed=cores, physical=cores, quota=None)
    facts = replace(LAPTOP, load=OtherWork(cores=load), cores=here)
    assert one(facts, "load").state is state


@pytest.mark.parametrize(
    ("free", "state", "blocks"),
    [
        (4_000_000_000, State.OK, False),
        (3_999_999_999, State.NOTE, False),
        (750_000_000, State.NOTE, False),
        (749_999_999, State.PROBLEM, True),
    ],
)
def test_too_little_memory_for_tensorflow_blocks(free: int, state: State, blocks: bool) -> None:
    check = one(replace(LAPTOP, available_memory_bytes=free), "memory")
    assert (check.state, check.blocks) == (state, blocks)


def test_workers_that_anyone_can_reach_are_a_problem() -> None:
    assert one(LAPTOP, "network").state is State.OK
    refused = replace(LAPTOP, has_private_network=False)
    assert one(refused, "network").state is State.PROBLEM
    assert next_command(refused, check_all(refused)) == "advisor analyze MODEL.py --no-run"
    on_cards = replace(refused, visible_gpus=2, calibrations=())
    assert next_command(on_cards, check_all(on_cards)) == "advisor calibrate"


def test_a_calibration_shows_its_age_and_main_figures() -> None:
    assert one(LAPTOP, "calibration").finding == (
        "workers, 2 devices, 3 days old: copies 1.02 kB in 240 µs, 4.19 MB in 3.10 ms; "
        "step overhead 350 µs; busy for 4.00 ms before copies"
    )


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
def test_ages_are_told_in_their_largest_unit(age_ns: int, words: str) -> None:
    facts = replace(LAPTOP, calibrations=(replace(KEPT, age_ns=age_ns),))
    assert f", {words} old" in one(facts, "calibration").finding


def test_figures_that_noise_hid_are_left_out() -> None:
    kept = replace(KEPT, small=None, large=None, quantum_ns=0)
    finding = one(replace(LAPTOP, calibrations=(kept,)), "calibration").finding
    assert finding.endswith("old: step overhead 350 µs")


def test_without_a_calibration_that_holds_one_is_made_next() -> None:
    stale = replace(LAPTOP, calibrations=(replace(KEPT, holds=False),))
    assert one(stale, "calibration").state is State.NOTE
    assert "not used" in one(stale, "calibration").finding
    for facts in (stale, replace(LAPTOP, calibrations=())):
        assert next_command(facts, check_all(facts)) == "advisor calibrate"


def test_a_stale_calibration_beside_one_that_holds_asks_for_nothing() -> None:
    both = replace(LAPTOP, calibrations=(KEPT, replace(KEPT, holds=False)))
    fresh, stale = found(both, "calibration")
    assert fresh.state is State.OK
    assert stale.action is None


def test_every_problem_says_what_to_do() -> None:
    for check in check_all(SERVER):
        assert check.action or check.state is not State.PROBLEM, check
        assert not check.blocks or check.state is State.PROBLEM
