"""The command where output goes nowhere, strangers filled a folder, or a system lacks things."""

import json
import os
import subprocess
import sys

import pytest
from cli_answers import apart, refusal
from command_runs import _ROOT, LAUNCH, Ran
from layer_models import model
from program_runs import run_program
from real_runs import needs, needs_mounts

from placement_advisor.cli.app import READER_GONE
from placement_advisor.report.progress import harmless

GRAPH = "m.graph.json.gz"
MODEL = """
import tensorflow as tf
weights = tf.Variable(tf.zeros((300, 300)))
@tf.function
def step(x):
    return x @ weights
inputs = (tf.ones((4, 300)),)
"""
STRANGER = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
needs_stranger = needs(*STRANGER)


@pytest.fixture
def folder(tmp_path):
    model("in1 -> a", "in2 -> b", "a b -> dot").save(tmp_path / GRAPH)
    return tmp_path


def in_shell(folder, line, **variables):
    """Run a line of shell in which `$ADVISOR` is the command."""
    launch = f"'{sys.executable}' -P -c \"{LAUNCH}\""
    words = line.replace("$ADVISOR", launch)
    return run_program("bash", "-c", words, cwd=folder, env={"PYTHONPATH": str(_ROOT), **variables})


def test_output_that_goes_nowhere_is_one_error_or_none(folder):
    ran = in_shell(folder, f"$ADVISOR graph {GRAPH} > /dev/full")
    assert ran.returncode == 2
    assert ran.stderr == (
        "advisor: error: standard output cannot be written: No space left on device\n"
        "advisor: hint: make room, or send the output elsewhere\n"
    )
    ran = in_shell(folder, f"$ADVISOR graph {GRAPH} >&-")
    assert (ran.returncode, ran.stderr) == (0, "")


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
    assert in_shell(folder, f"'{sys.executable}' -c \"{code}\" <&- >&- 2>&-").returncode == 0
    assert int((folder / "written").read_text()) > 2


def test_a_terminal_that_knows_ascii_alone_gets_question_marks(folder):
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = in_shell(folder, "$ADVISOR explain PA101", **plain)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()


def test_names_in_errors_neither_drive_a_terminal_nor_a_ci_system():
    error = refusal(apart("graph", "gone\x1b[2J\n::error::forged"))
    assert "\x1b" not in error
    assert not any(line.startswith("::") for line in error.splitlines())
    assert "forged" in error


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
@needs_mounts
def test_a_full_disk_under_temporary_files_is_one_error(folder):
    (folder / "model.py").write_text(MODEL)
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


@pytest.mark.slow
def test_tracing_a_model_runs_no_module_of_the_current_folder(checkout):
    path = checkout.parent / "models" / "model.py"
    path.parent.mkdir()
    path.write_text(MODEL)
    ran = apart("trace", str(path), cwd=checkout)
    assert ran.code == 0, ran.err
    assert list(checkout.parent.glob("* ran")) == []


DRAW = """
import sys
from pathlib import Path
from placement_advisor.report.pictures.canvas import new_page, plain_style, save, write
with plain_style():
    figure = new_page(2.0)
    figure.add_axes((0.1, 0.1, 0.8, 0.8))
    write(figure, 1.0, 0.5, "text")
save(figure, Path(sys.argv[1]))
"""


def test_matplotlibs_settings_in_the_current_folder_change_no_picture(checkout):
    for name in ("plain.png", "theirs.png"):
        ran = apart(name, launch=DRAW, cwd=checkout)
        assert ran.code == 0, ran.err
        (checkout / "matplotlibrc").write_text("text.usetex: true\naxes.facecolor: red\n")
    assert (checkout / "theirs.png").read_bytes() == (checkout / "plain.png").read_bytes()


HOMES = ("HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR")
LISTEN = """
from multiprocessing.connection import Listener
from placement_advisor.processes.children import _temporary_folder
folder = _temporary_folder()
print(Listener(family="AF_UNIX").address.startswith(folder))
"""


def run(within, *words, cwd, **variables):
    """Run the command within another one, without a home but for what variables say."""
    unset = (word for name in HOMES for word in ("-u", name))
    instead = (f"{name}={text}" for name, text in variables.items())
    return apart(*words, within=(*within, "env", *unset, *instead), cwd=cwd)


@needs_stranger
@pytest.mark.parametrize(
    "words", ["doctor", f"search {GRAPH} --hardware 2xV100-NVLink --effort 0.01"]
)
def test_a_user_without_a_name_and_a_home_is_served(folder, words):
    ran = run(STRANGER, *words.split(), cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert not (folder / "~").exists()


@needs_stranger
def test_a_folder_that_cannot_be_entered_holds_no_settings(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    error = refusal(run(STRANGER, "check", cwd=closed))
    assert error.startswith("advisor: error: no pyproject.toml in ")


@needs_mounts
def test_without_a_place_for_temporary_files_that_is_said():
    read_only = 'for d in /tmp /var/tmp; do mount --bind -o ro $d $d; done; exec "$@"'
    within = ("unshare", "--mount", "sh", "-c", read_only, "-")
    nowhere = {"HOME": "/proc/none", "TMPDIR": "/proc/none"}
    ran = run(within, "calibrate", "--testbed", "logical-cpus", cwd="/proc", **nowhere)
    error, hint = refusal(ran).splitlines()
    assert error.startswith("advisor: error: temporary files cannot be written anywhere: ")
    assert hint.endswith("with TMPDIR")


def test_sockets_are_made_where_their_path_is_short(tmp_path):
    far = tmp_path / ("far" * 40)
    far.mkdir()
    assert apart(launch=LISTEN, TMPDIR=str(far)) == Ran(code=0, out="True\n", err="")
