"""What the command prints where its output goes nowhere, and names that would drive a terminal."""

import json
import os
import subprocess
import sys

import pytest
from command_runs import _ROOT, LAUNCH
from layer_models import model

from placement_advisor.cli.app import READER_GONE
from placement_advisor.report.progress import harmless

GRAPH = "m.graph.json.gz"
NAMESPACES = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)


@pytest.fixture
def folder(tmp_path):
    """A folder with a graph file."""
    model("in1 -> a", "in2 -> b", "a b -> dot").save(tmp_path / GRAPH)
    return tmp_path


def in_shell(folder, line, **variables):
    """Run a line of shell in which `$ADVISOR` is the command."""
    launch = f"'{sys.executable}' -P -c \"{LAUNCH}\""
    return subprocess.run(
        ["bash", "-c", line.replace("$ADVISOR", launch)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_full_disk_under_standard_output_is_one_error(folder):
    ran = in_shell(folder, f"$ADVISOR graph {GRAPH} > /dev/full")
    assert ran.returncode == 2
    assert ran.stderr == (
        "advisor: error: standard output cannot be written: No space left on device\n"
        "advisor: hint: make room, or send the output elsewhere\n"
    )


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", LAUNCH, "graph", GRAPH],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (READER_GONE, b"")


def test_a_closed_standard_output_is_no_error(folder):
    ran = in_shell(folder, f"$ADVISOR graph {GRAPH} >&-")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_messages_that_go_nowhere_change_nothing_else(folder, where):
    ran = in_shell(folder, f"$ADVISOR search {GRAPH} --json 2>{where}")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)
    ran = in_shell(folder, f"$ADVISOR graph gone.gz 2>{where}")
    assert (ran.returncode, ran.stdout) == (2, "")


def test_what_is_closed_is_no_place_for_a_file(folder):
    code = (
        "from placement_advisor.cli.console import open_streams; open_streams(); "
        "file = open('written', 'w'); print(file.fileno(), file=file)"
    )
    ran = in_shell(folder, f"'{sys.executable}' -c \"{code}\" <&- >&- 2>&-")
    assert ran.returncode == 0
    assert int((folder / "written").read_text()) > 2


def test_a_terminal_that_knows_ascii_alone_gets_question_marks(folder):
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = in_shell(folder, "$ADVISOR explain PA101", **plain)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()


def test_names_in_errors_neither_drive_a_terminal_nor_a_ci_system(folder):
    name = "gone\x1b[2J\n::error::forged"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", LAUNCH, "graph", name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "\x1b" not in ran.stderr
    assert not any(line.startswith("::") for line in ran.stderr.splitlines())
    assert "forged" in ran.stderr


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("two\nlines", "two\nlines"),
        ("  ::warning file=a::b", "  \\::warning file=a::b"),
        ("a::b", "a::b"),
        ("so ##[error]b", "so ##\\[error]b"),
        ("\x9b31m\r\u202e\ud800", "�31m���"),
    ],
)
def test_harmless_text_stays_readable(told, shown):
    assert harmless(told) == shown


@pytest.mark.slow
@pytest.mark.skipif(NAMESPACES.returncode != 0, reason="the system refuses a mount namespace")
def test_a_full_disk_under_temporary_files_is_one_error(folder):
    (folder / "model.py").write_text(
        "import tensorflow as tf\n"
        "weights = tf.Variable(tf.zeros((300, 300)))\n"
        "@tf.function\n"
        "def step(x):\n"
        "    return x @ weights\n"
        "inputs = (tf.ones((4, 300)),)\n"
    )
    temp = folder / "temp"
    temp.mkdir()
    mount = f"mount -t tmpfs -o size=64k tmpfs {temp}"
    line = f"unshare --mount bash -c '{mount} && \"$@\"' - $ADVISOR analyze model.py --no-run -q"
    ran = in_shell(folder, line, TMPDIR=str(temp))
    assert ran.returncode == 2
    assert ran.stderr == (
        f"advisor: error: temporary files cannot be written in {temp}: No space left on device\n"
        "advisor: hint: make room, or choose another folder with TMPDIR\n"
    )
    assert not (folder / "advisor-out").exists()
