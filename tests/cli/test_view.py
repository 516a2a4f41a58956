"""`advisor view`: a TensorBoard that ends with the command."""

import json
import os
import socket
import urllib.error
import urllib.request

import pytest
from cli_answers import error_of
from command_runs import Command, run_here, wait_until

from placement_advisor.files.output import OVERVIEW


@pytest.fixture
def analysis(tmp_path):
    overview = tmp_path / "advisor-out" / "mine" / "tensorboard" / OVERVIEW
    overview.parent.mkdir(parents=True)
    overview.write_text("{}")
    return tmp_path / "advisor-out"


def asked_for(address, host):
    """Return what is answered to a request that names a host."""
    request = urllib.request.Request(f"{address}data/plugins_listing", headers={"Host": host})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def test_a_folder_without_an_analysis_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert error_of("view")[0] == "advisor: error: advisor-out: no such folder"
    assert error_of("view", "nowhere") == [
        "advisor: error: nowhere: no such folder",
        "advisor: hint: `advisor analyze MODEL` writes what can be shown",
    ]
    assert error_of("view", str(tmp_path))[0] == f"advisor: error: {tmp_path}: holds no analysis"


def test_where_tensorboard_cannot_listen_is_named(analysis):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = error_of("view", str(analysis), "--port", str(port))
    assert said[-2:] == [
        f"advisor: error: cannot listen on port {port} of 127.0.0.1: Address already in use",
        "advisor: hint: choose another one with --port; 0 takes any that is free",
    ]
    error = error_of("view", str(analysis), "--host", "192.0.2.1")[-2]
    assert error.startswith("advisor: error: cannot listen on port 6006 of 192.0.2.1: ")
    assert "--port" in " ".join(error_of("view", str(analysis), "--port", "70000"))


def test_a_tensorboard_that_does_not_start_is_quoted(analysis, tmp_path, monkeypatch):
    broken = tmp_path / "broken" / "tensorboard"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('of another version')")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent), prepend=os.pathsep)
    ran = run_here("view", str(analysis), "--port", "0")
    error = ran.err.splitlines()
    assert ran.code == 2
    assert "advisor: error: TensorBoard did not start" in error
    assert "ImportError: of another version" in ran.err
    assert error[-1].startswith("advisor: hint: see whether it does alone: ")


def test_the_default_folder_is_served_to_this_machine_until_ctrl_c(analysis, checkout, tmp_path):
    quick = analysis.rename(checkout / "advisor-out") / "quick" / "analysis.json"
    quick.parent.mkdir()
    quick.write_text("{}")
    with Command("view", "--port", "0", temp=tmp_path / "temp", cwd=checkout) as command:
        command.wait_for_line("not shown, as it is text alone: advisor-out/quick; advisor show ")
        command.wait_for_line("starting TensorBoard")
        wait_until(lambda: bool(command.out) or command.process.poll() is not None)
        address, _, rest = command.out.partition("#placement")
        assert rest == " shows advisor-out (Ctrl-C ends it)\n"
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}data/plugin/placement/runs") as answer:
            assert [run["name"] for run in json.loads(answer.read())] == ["mine"]
        port = address.rstrip("/").rpartition(":")[2]
        assert asked_for(address, f"rebound.example:{port}") == 403
        assert asked_for(address, f"localhost:{port}") == 200
        command.process.send_signal(2)
        assert command.wait().code == 0
        assert command.processes_left() == []
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(address)
    assert list(tmp_path.glob("* ran")) == []  # Nor do modules of the current folder.


def test_a_command_that_is_killed_takes_tensorboard_with_it(analysis, tmp_path):
    with Command("view", "--port", "0", temp=tmp_path / "temp", cwd=tmp_path) as command:
        wait_until(lambda: len(command.processes()) > 1)
        command.process.kill()
        command.wait()
        assert command.processes_left() == []
