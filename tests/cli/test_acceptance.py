"""`advisor doctor --run` on two workers, and what the command makes of what it found."""

import getpass
import socket
import zipfile

import pytest
from cli_answers import error_of, told
from command_runs import run_here
from real_runs import needs_workers

from placement_advisor.analysis import acceptance
from placement_advisor.analysis.acceptance import (
    Acceptance,
    AcceptanceCheck,
    CheckOutcome,
    DevicePair,
)
from placement_advisor.errors import TestbedError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed

# What other work on the machine may lengthen.
ABOUT_TIME = {"steps", "op times"}


@needs_workers
def test_a_real_run_finds_workers_as_they_must_be_and_its_bundle_names_nobody(advisor, tmp_path):
    path = tmp_path / "it.zip"
    ran = advisor("doctor", "--run", "--json", "--bundle", str(path))
    assert ran.err == ""
    content = told(ran, "acceptance", passed="trusted")
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
    pair = DevicePair(
        near="worker:0", far="worker:1", expected={}, peer_access=None, findings=findings
    )
    return Acceptance(plan_testbed(TestbedKind.WORKERS, 2), OpGraph((), ()), (pair,), {})


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


def test_what_is_off_is_a_failed_check_and_what_cannot_be_set_up_an_error_without_a_bundle(
    here, monkeypatch
):
    def refuse(*_):
        raise TestbedError("nothing to run on")

    monkeypatch.setattr(acceptance, "run_acceptance", refuse)
    ran = run_here("doctor", "--run")
    assert (ran.code, ran.out) == (2, "")
    assert list(here.iterdir()) == []
    killed = AcceptanceCheck("run", CheckOutcome.OFF, "worker:1 was killed")
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
    assert message in " ".join(error_of("doctor", *words))
