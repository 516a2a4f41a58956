"""`advisor doctor` on this machine, whatever it is, and `--run` on two workers."""

import getpass
import socket
import sys
import zipfile
from dataclasses import replace

import cli_answers
import pytest
from command_runs import LAUNCH, run_here
from real_runs import needs_workers
from sample_calibration import IN_ONE_PROCESS

from placement_advisor.analysis import acceptance
from placement_advisor.errors import TestbedError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine import machine_facts
from placement_advisor.machine.calibration import calibration_fingerprint
from placement_advisor.machine.machine_facts import Package
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed

# Whatever of these is broken, doctor is what one turns to.
HEAVY = ("tensorflow", "keras", "numpy", "numba", "networkx", "matplotlib", "google")
BARE = replace(IN_ONE_PROCESS, links=dict.fromkeys(IN_ONE_PROCESS.links, ()))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def told():
    ran = run_here("doctor", "--json")
    assert ran.err == ""
    return cli_answers.told(ran, "doctor", passed="can_analyze")


def test_text_and_json_tell_of_this_environment(cache):
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


def test_it_works_where_nothing_else_can_be_imported(cache):
    broken = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r}))\n{LAUNCH}"
    ran = cli_answers.apart("doctor", launch=broken.replace("; main()", "\nmain()"))
    assert ran.err == ""
    assert ran.code in (0, 1)
    assert "next: " in ran.out


def test_a_calibration_holds_where_its_fingerprint_is_this_testbeds(cache):
    plan = plan_testbed(TestbedKind.LOGICAL_CPUS, 2)
    BARE.save(calibration_fingerprint(plan), testbed="logical-cpus")
    BARE.save("0" * 16, testbed="logical-cpus")
    assert sorted(kept["holds"] for kept in told()["calibrations"]) == [False, True]
    BARE.save("0" * 16, testbed="gpus")
    BARE.save("1" * 16, testbed="a kind of tomorrow")
    (kept,) = (each for each in told()["calibrations"] if each["testbed"] == "gpus")
    assert (kept["testbed"], kept["holds"], kept["small_copy"]) == ("gpus", False, None)


def test_what_blocks_is_a_failed_check(cache, monkeypatch):
    facts = machine_facts.examine()
    missing = (Package(name="tensorflow", version=None, wanted=">=2.21", unmet=()),)
    monkeypatch.setattr(machine_facts, "examine", lambda: replace(facts, packages=missing))
    ran = run_here("doctor")
    assert ran.code == 1
    assert ran.out.endswith("`advisor analyze` cannot work\nnext: pip install 'tensorflow>=2.21'\n")


# What other work on the machine may lengthen.
ABOUT_TIME = {"steps", "op times"}


@needs_workers
def test_a_real_run_finds_workers_as_they_must_be_and_its_bundle_names_nobody(advisor, tmp_path):
    path = tmp_path / "it.zip"
    ran = advisor("doctor", "--run", "--json", "--bundle", str(path))
    assert ran.err == ""
    content = cli_answers.told(ran, "acceptance", passed="trusted")
    (pair,) = content["pairs"]
    found = {each["name"]: (each["outcome"], each["finding"]) for each in pair["findings"]}
    assert {name for name, (outcome, _) in found.items() if outcome == "unknown"} == {"peer access"}
    off = {name: what for name, what in found.items() if what[0] == "off"}
    assert off.keys() <= ABOUT_TIME, off
    assert found["steps"][1].startswith("10 of 10 in the profile")
    assert "by the shapes in the graph" in found["bytes"][1]
    # Products take µs; reads of their variables, whose names begin as theirs do, take ns.
    assert " ns," not in found["op times"][1]
    assert not content["untried_on_gpus"]
    with zipfile.ZipFile(path) as bundle:
        found = {name: bundle.read(name) for name in bundle.namelist()}
    folder = "profiles/worker-0-and-worker-1"
    assert {name for name in found if name.startswith("profiles/")} == {
        f"{folder}/{process}.xplane.pb" for process in ("client", "worker-0", "worker-1")
    }
    private = (socket.gethostname(), str(path.parent), f"/{getpass.getuser()}/", "127.0.0.1")
    for name, content in found.items():
        assert [text for text in private if text.encode() in content] == [], name


def found(*findings):
    pair = acceptance.DevicePair(
        near="worker:0", far="worker:1", expected={}, peer_access=None, findings=findings
    )
    return acceptance.Acceptance(plan_testbed(TestbedKind.WORKERS, 2), OpGraph((), ()), (pair,), {})


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder; nothing is run, and all is well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(acceptance, "run_acceptance", lambda *_: found())
    return tmp_path


def test_a_bundle_goes_where_it_is_told_and_replaces_none_if_nobody_named_it(here):
    (here / "advisor-acceptance.zip").write_text("an older one")
    ran = run_here("doctor", "--run")
    assert (ran.code, ran.out.splitlines()[-2]) == (0, "bundle: advisor-acceptance-2.zip")
    assert (here / "advisor-acceptance.zip").read_text() == "an older one"
    assert zipfile.is_zipfile(here / "advisor-acceptance-2.zip")
    (here / "mine.zip").write_text("an older one")
    ran = run_here("doctor", "--run", "--bundle", "mine.zip")
    assert ran.out.splitlines()[-2] == "bundle: mine.zip"
    assert zipfile.is_zipfile(here / "mine.zip")


def test_what_is_off_fails_and_what_cannot_be_set_up_is_an_error_without_bundle(here, monkeypatch):
    def refuse(*_):
        raise TestbedError("nothing to run on")

    monkeypatch.setattr(acceptance, "run_acceptance", refuse)
    ran = run_here("doctor", "--run")
    assert (ran.code, ran.out) == (2, "")
    assert list(here.iterdir()) == []
    killed = acceptance.AcceptanceCheck("run", acceptance.CheckOutcome.OFF, "worker:1 was killed")
    monkeypatch.setattr(acceptance, "run_acceptance", lambda *_: found(killed))
    ran = run_here("doctor", "--run")
    assert ran.code == 1
    assert ran.out.splitlines()[-2] == "off: run (worker:0 and worker:1)"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bundle", "it.zip"), "--bundle needs --run"),
        (("--open-ports",), "--open-ports needs --run"),
        (("--run", "--bundle", "it.tar"), "--bundle it.tar: not the name of a bundle"),
        (("--run", "--bundle", "no/it.zip"), "no/it.zip: cannot be written"),
    ],
)
def test_options_that_do_not_fit_are_refused(here, words, message):
    assert message in " ".join(cli_answers.error_of("doctor", *words))
