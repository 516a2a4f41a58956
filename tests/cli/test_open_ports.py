"""Workers where the system gives no private network: refused, or told first and taken down."""

import socket

import psutil
import pytest
from command_runs import Command
from refusing_system import refuse_namespaces

from placement_advisor.machine.this_machine import usable_cores

pytestmark = pytest.mark.skipif(
    len(usable_cores()) < 2, reason="real runs need two cores of their own"
)
SETTINGS = """
[tool.advisor]
hardware = "2xV100-NVLink"
[[tool.advisor.models]]
path = "two_towers.py"
"""
FEW = ("--rounds", "5", "--steps", "1", "--effort", "0.01", "--candidates", "mirrored")


@pytest.fixture
def project(tmp_path, two_towers):
    root = tmp_path / "project"
    root.mkdir()
    (root / two_towers.name).write_text(two_towers.read_text())
    (root / "pyproject.toml").write_text(SETTINGS)
    return root


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("analyze two_towers.py", "--no-run only predicts; --testbed logical-cpus"),
        ("balance two_towers.py", "--testbed logical-cpus takes one process"),
        ("calibrate", "--testbed logical-cpus takes one process"),
        ("check --measure", "without --measure placements are only predicted"),
    ],
)
def test_whatever_starts_workers_refuses_with_the_ways_out(project, tmp_path, words, instead):
    before = sorted(project.rglob("*"))
    temp = tmp_path / "temp"
    with Command(*words.split(), temp=temp, cwd=project, before=refuse_namespaces) as command:
        ran = command.wait()
        assert command.processes_left() == []
    assert ran.code == 2, ran.err
    error, hint = ran.err.splitlines()
    assert error.startswith("advisor: error: this system allows no private network. TensorFlow")
    assert hint.startswith(f"advisor: hint: {instead}")
    assert "--open-ports accepts it" in hint
    assert sorted(project.rglob("*")) == before
    assert list(temp.iterdir()) == []


@pytest.mark.slow
def test_ports_that_are_accepted_are_open_for_as_long_as_the_command_runs(project, tmp_path):
    words = ("analyze", "two_towers.py", "--open-ports", *FEW)
    with Command(*words, temp=tmp_path / "temp", cwd=project, before=refuse_namespaces) as command:
        command.wait_for_line("timing rounds")
        assert "warning: this system allows no private network" in command.err.split("\n")[0]
        open_to = {
            found.laddr
            for process in command.processes()
            for found in process.net_connections("tcp")
            if found.status == psutil.CONN_LISTEN
        }
        assert len(open_to) == 4  # Two workers, and two copies of the model.
        assert {address.ip for address in open_to} <= {"0.0.0.0", "::"}
        for address in open_to:
            with socket.create_connection(("127.0.0.1", address.port)):
                pass
        ran = command.wait()
        assert command.processes_left() == []
    assert ran.code == 0, ran.err
    for address in open_to:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", address.port))
