"""Doctor's findings of machines that are written by hand: which fire, and how they are told."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from placement_advisor.files.contract import plain
from placement_advisor.machine.doctor_checks import Check, State, check_all, next_command
from placement_advisor.machine.machine_facts import CopyTime, Facts, KeptFigures, Package, Unmet
from placement_advisor.machine.nvidia import Connection, Gpu, GpuPair, Gpus
from placement_advisor.machine.this_machine import Cores, OtherWork
from placement_advisor.report.doctor_text import check_facts, render_doctor
from placement_advisor.report.document import text_lines
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.doctor import Doctor

HOUR_NS = 3_600 * 10**9

KEPT = KeptFigures(
    testbed="workers",
    devices=("worker:0", "worker:1"),
    age_ns=3 * 24 * HOUR_NS,
    holds=True,
    small_copy=CopyTime(size_bytes=1_024, copy_ns=240_000),
    large_copy=CopyTime(size_bytes=4_194_304, copy_ns=3_100_000),
    step_overhead_ns=350_000,
    quantum_ns=4_000_000,
)

# Two cores, no GPU, everything in order.
LAPTOP = Facts(
    advisor_version="0.1.0",
    python_version="3.11.7",
    wanted_python=">=3.11,<3.14",
    packages=(
        Package(name="tensorflow", version="2.21.0", wanted="<2.22,>=2.21", unmet=()),
        Package(name="keras", version="3.15.1", wanted="<4,>=3.12", unmet=()),
        Package(name="xprof", version="2.24.2", wanted=None, unmet=()),
    ),
    has_profile_plugin=True,
    has_cuda_libraries=False,
    visible_gpus=0,
    gpus=Gpus(),
    has_sys_admin=False,
    cores=Cores(machine=2, allowed=2, physical=2, quota=None),
    load=OtherWork(cores=0.2),
    available_memory_bytes=20_000_000_000,
    has_private_network=True,
    calibrations=(KEPT,),
)


def pair(first, second, code, connection):
    return GpuPair(first=first, second=second, code=code, connection=connection)


UNMET = Unmet(by="tensorflow", wanted="<8.0.0,>=6.31.1")
# Four cards on two sockets, in a container in which everything is wrong that can be.
SERVER = replace(
    LAPTOP,
    python_version="3.14.0",
    packages=(
        Package(name="tensorflow", version=None, wanted="<2.22,>=2.21", unmet=()),
        Package(name="tensorboard", version=None, wanted="<2.22,>=2.21", unmet=()),
        Package(name="protobuf", version="8.1.0", wanted=">=6.31", unmet=(UNMET,)),
    ),
    has_profile_plugin=False,
    visible_gpus=2,
    gpus=Gpus(
        devices=tuple(
            Gpu(index=i, name="Tesla V100-SXM2-16GB", memory_bytes=17_179_869_184) for i in range(4)
        ),
        driver="535.104.05",
        pairs=(
            pair(0, 1, "NV12", Connection.NVLINK),
            pair(0, 2, "SYS", Connection.SOCKETS),
            pair(0, 3, "SYS", Connection.SOCKETS),
            pair(1, 2, "PHB", Connection.PCIE),
            pair(1, 3, "C2C", None),
            pair(2, 3, "NV12", Connection.NVLINK),
        ),
        admins_profile=True,
    ),
    cores=Cores(machine=64, allowed=16, physical=8, quota=1),
    load=OtherWork(cores=7.5, busiest="make (process 4711, 98% of a core)"),
    available_memory_bytes=300_000_000,
    has_private_network=False,
    calibrations=(replace(KEPT, holds=False), replace(KEPT, holds=False, age_ns=9 * 24 * HOUR_NS)),
)


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
        (replace(LAPTOP, visible_gpus=2, gpus=Gpus(problem="broken")), "problem", "broken", ""),
        (with_cards(4), "ok", "4 × Tesla V100-SXM2-16GB, 17.2 GB", ""),
        (SERVER, "note", "", "CUDA_VISIBLE_DEVICES"),  # Hidden ones.
        (with_cards(1, devices=SERVER.gpus.devices[:1], pairs=()), "note", "", "needs two"),
        # Only the system shows them.
        (replace(LAPTOP, visible_gpus=2), "note", "2 GPUs for TensorFlow to see", ""),
    ],
)
def test_cards_are_a_problem_where_the_driver_fails_and_noted_where_few(
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
    ("admins_profile", "is_admin", "state"),
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
def test_who_may_profile_is_either_everyone_or_an_administrator(admins_profile, is_admin, state):
    gpus = replace(SERVER.gpus, admins_profile=admins_profile)
    facts = replace(SERVER, gpus=gpus, has_sys_admin=is_admin)
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


GOLDEN = Path(__file__).parent / "golden"
VALIDATOR = jsonschema.Draft202012Validator(load_schema("doctor"))


def told(facts):
    content = plain(Doctor.of(facts))
    read = json.loads(json.dumps(content, allow_nan=False))
    assert read == content
    VALIDATOR.validate(read)
    return read


@pytest.mark.parametrize(("name", "facts"), [("laptop", LAPTOP), ("server", SERVER)])
def test_the_text_is_the_golden_one_and_fits_a_terminal(name, facts):
    assert max(map(len, render_doctor(facts).splitlines())) <= 100
    assert render_doctor(facts) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_findings_stand_under_one_another_however_long_their_names_are():
    names = ("cores", "localhost → another-host")
    checks = [Check(name=name, state=State.OK, finding="found") for name in names]
    assert text_lines(check_facts(checks)) == [
        "ok       cores                    found",
        "ok       localhost → another-host found",
    ]


def test_the_document_says_whether_to_analyse_what_is_next_and_null_where_nothing_is_known():
    content = told(LAPTOP)
    assert content["can_analyze"] is True
    assert content["next"] == "advisor analyze MODEL.py"
    assert content["gpus"]["pairs"] is None
    copy = content["calibrations"][0]["large_copy"]
    assert copy == {"size_bytes": 4_194_304, "copy_ns": 3_100_000}

    content = told(SERVER)
    assert content["can_analyze"] is False
    assert content["next"] == "pip install 'tensorflow<2.22,>=2.21'"
    assert [c["name"] for c in content["checks"] if c["blocks"]] == ["tensorflow", "memory"]
    pairs = content["gpus"]["pairs"]
    assert pairs[0] == {"first": 0, "second": 1, "code": "NV12", "connection": "nvlink"}
    assert pairs[4]["connection"] is None

    kept = replace(LAPTOP.calibrations[0], small_copy=None, large_copy=None)
    content = told(replace(LAPTOP, wanted_python=None, has_sys_admin=None, calibrations=(kept,)))
    assert content["python"]["wanted"] is content["gpus"]["sys_admin"] is None
    assert content["calibrations"][0]["small_copy"] is None
