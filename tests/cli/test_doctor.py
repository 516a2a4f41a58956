"""`advisor doctor` on this machine, whatever it is."""

import sys
from dataclasses import replace

import cli_answers
import pytest
from command_runs import LAUNCH, run_here
from sample_calibration import IN_ONE_PROCESS

from placement_advisor.machine import machine_facts
from placement_advisor.machine.calibration import calibration_fingerprint
from placement_advisor.machine.machine_facts import Package
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed

# Whatever of these is broken, doctor is what one turns to.
HEAVY = ("tensorflow", "keras", "numpy", "numba", "networkx", "matplotlib", "google")
BARE = replace(IN_ONE_PROCESS, links=dict.fromkeys(IN_ONE_PROCESS.links, ()))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def told():
    ran = run_here("doctor", "--json")
    assert ran.err == ""
    return cli_answers.told(ran, "doctor", passed="can_analyze")


def test_text_and_json_tell_of_this_environment():
    lines = run_here("doctor").out.splitlines()
    assert lines[0].startswith("advisor ")
    assert lines[-1].startswith("next: ")
    states = {line.split()[0] for line in lines[2:-1] if line and not line.startswith(" ")}
    assert states <= {"ok", "note", "problem"}
    content = told()
    assert content["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert all(package["version"] for package in content["packages"])
    assert content["available_memory_bytes"] > 0
    assert content["calibrations"] == []


def test_it_works_where_nothing_else_can_be_imported():
    broken = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))\n{LAUNCH}"
    ran = cli_answers.apart("doctor", launch=broken.replace("; main()", "\nmain()"))
    assert ran.err == ""
    assert ran.code in (0, 1)
    assert "next: " in ran.out


def test_a_calibration_holds_where_its_fingerprint_is_this_testbeds():
    plan = plan_testbed(TestbedKind.LOGICAL_CPUS, 2)
    BARE.save(calibration_fingerprint(plan), testbed="logical-cpus")
    BARE.save("0" * 16, testbed="logical-cpus")
    assert sorted(kept["holds"] for kept in told()["calibrations"]) == [False, True]
    BARE.save("0" * 16, testbed="gpus")
    BARE.save("1" * 16, testbed="a kind of tomorrow")
    (kept,) = (each for each in told()["calibrations"] if each["testbed"] == "gpus")
    assert (kept["testbed"], kept["holds"], kept["small_copy"]) == ("gpus", False, None)


def test_what_blocks_is_a_failed_check(monkeypatch):
    facts = machine_facts.examine()
    missing = (Package(name="tensorflow", version=None, wanted=">=2.21", unmet=()),)
    monkeypatch.setattr(machine_facts, "examine", lambda: replace(facts, packages=missing))
    ran = run_here("doctor")
    assert ran.code == 1
    assert ran.out.endswith("`advisor analyze` cannot work\nnext: pip install 'tensorflow>=2.21'\n")
