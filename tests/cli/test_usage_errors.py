"""Words that ask for what cannot be meant: one error, before anything starts."""

import pytest
from cli_answers import refusal
from command_runs import run_here


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.fixture
def refused(advisor, tmp_path, monkeypatch):
    """Runs `analyze` in an empty folder with a model file; returns the one error that it gives."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "model.py").write_text("raise AssertionError('was run')\n")
    (here / "notes.txt").write_text("not Python")
    (here / "theirs").mkdir()
    (here / "theirs" / "thesis.tex").write_text("years of work")
    (here / "exported").mkdir()
    (here / "exported" / "saved_model.pb").touch()
    monkeypatch.chdir(here)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def run(*words):
        before = tree(tmp_path)
        error = refusal(advisor("analyze", *words))
        assert tree(tmp_path) == before
        return " ".join(error.replace("│", " ").split())

    return run


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ("nowhere.py", ["advisor: error: nowhere.py: no such file"]),
        ("notes.txt", ["notes.txt: not a model file", "a .keras file, a SavedModel directory"]),
        ("theirs", ["theirs: a directory without a saved_model.pb"]),
        (":model", ["':model': no file given"]),
        ("exported/saved_model.pb", ["part of a SavedModel"]),
        ("model.py --devices 1", ["--devices", "greater than or equal to 2"]),
        ("model.py --candidates towers,towrs", ["'towrs'", "single, as-written, towers, towers-"]),
        ("model.py --candidates ,", ["--candidates names none"]),
        ("model.py --outputs ,", ["--outputs names none"]),
        ("model.py --testbed gpus", ["2 devices asked for, 1 GPUs found", "--testbed workers"]),
        ("model.py --batch-size 0", ["--batch-size"]),
        ("model.py --ratios 3/2", ["--ratios 3/2: not numbers"]),
        ("model.py --ratios 3:2:1 --devices 2 --no-run", ["--ratios: 3 ratios for 2 devices"]),
        (
            "model.py -o notes.txt/sub/out",
            ["notes.txt/sub/out: cannot be written: notes.txt is a file", "another folder with -o"],
        ),
        ("model.py -o /proc/advisor/out", ["/proc/advisor/out: cannot be written"]),
        ("model.py -o notes.txt", ["notes.txt is a file"]),
        ("model.py -o theirs", ["theirs: not empty, and not the output of an earlier analysis"]),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(refused, words, messages):
    error = refused(*words.split())
    assert all(message in error for message in messages), error


def test_the_help_of_check_names_the_table_of_its_settings(advisor):
    assert "[tool.advisor]" in advisor("check", "--help").out


@pytest.mark.parametrize("command", ["analyze model.py", "calibrate", "doctor"])
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--launch ssh", "--launch needs --hosts or --hostfile"),
        ("--hosts a:1", "one device has nothing to be split over"),
        ("--hosts a:2@10.0.0.1:7600", "'10.0.0.1:7600' is no address"),
        ("--hosts a:2 --hostfile hosts", "--hosts and --hostfile cannot be used together"),
    ],
)
def test_what_names_no_hosts_is_one_error(command, words, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("raise AssertionError('was run')\n")
    ran = run_here(*command.split(), *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
    assert "Traceback" not in ran.err
