"""The command where a container leaves things out: home, user, a place for temporary files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import _ROOT, LAUNCH, Command, Ran
from layer_models import model

STRANGER = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
HOMES = ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")
MOUNTS = ("unshare", "--mount")


def needs(namespace):
    ran = subprocess.run([*namespace, "true"], check=False, capture_output=True)
    return pytest.mark.skipif(ran.returncode != 0, reason="the system refuses that namespace")


needs_stranger, needs_mounts = needs(STRANGER), needs(MOUNTS)
LISTEN = """
from multiprocessing.connection import Listener
from placement_advisor.processes.children import _temporary_folder
folder = _temporary_folder()
print(Listener(family="AF_UNIX").address.startswith(folder))
"""


def run(within, *words, cwd, **variables):
    """Run the command within another one, without a home."""
    bare = {name: text for name, text in os.environ.items() if name not in HOMES}
    ran = subprocess.run(
        [*within, sys.executable, "-P", "-c", LAUNCH, *words],
        cwd=cwd,
        env={**bare, "PYTHONPATH": str(_ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)


@needs_stranger
@pytest.mark.parametrize(
    "words",
    [
        "doctor",
        "graph two.graph.json.gz --png two.png",
        "search two.graph.json.gz --hardware 2xV100-NVLink --effort 0.01",
    ],
)
def test_a_user_without_a_name_and_a_home_is_served(tmp_path, words):
    model("in1 -> a", "in2 -> b", "a b -> dot").save(tmp_path / "two.graph.json.gz")
    ran = run(STRANGER, *words.split(), cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert not (tmp_path / "~").exists()


@needs_stranger
def test_a_folder_that_cannot_be_entered_holds_no_settings(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    ran = run(STRANGER, "check", cwd=closed)
    assert ran.code == 2
    assert ran.err.startswith("advisor: error: no pyproject.toml in ")


@needs_mounts
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("calibrate --testbed logical-cpus", "temporary files cannot be written anywhere: "),
        ("graph {graph} --png /dev/shm/two.png", "no picture can be drawn: "),
    ],
)
def test_without_a_place_for_temporary_files_that_is_said(tmp_path, words, message):
    graph = tmp_path / "two.graph.json.gz"
    model("in1 -> a", "in2 -> b", "a b -> dot").save(graph)
    read_only = 'for d in /tmp /var/tmp; do mount --bind -o ro $d $d; done; exec "$@"'
    within = (*MOUNTS, "sh", "-c", read_only, "-")
    nowhere = {"HOME": "/proc/none", "TMPDIR": "/proc/none"}
    ran = run(within, *words.format(graph=graph).split(), cwd=Path("/proc"), **nowhere)
    assert ran.code == 2
    error, hint = ran.err.splitlines()
    assert error.startswith(f"advisor: error: {message}")
    assert hint.endswith("with TMPDIR")


def test_sockets_are_made_where_their_path_is_short(tmp_path):
    far = tmp_path / ("far" * 40)
    far.mkdir()
    ran = subprocess.run(
        [sys.executable, "-P", "-c", LISTEN],
        env={**os.environ, "PYTHONPATH": str(_ROOT), "TMPDIR": str(far)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")


@pytest.mark.slow
def test_a_model_is_traced_with_temporary_files_far_away(tmp_path, two_towers):
    far = tmp_path / ("far" * 40)
    words = ("trace", str(two_towers), "-o", str(tmp_path / "two.graph.json.gz"))
    with Command(*words, temp=far) as command:
        ran = command.wait()
        assert command.processes_left() == []
    assert ran.code == 0, ran.err
    assert list(far.iterdir()) == []
