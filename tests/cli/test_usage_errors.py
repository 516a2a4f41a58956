"""Words that ask for what cannot be meant: one error, before anything starts."""

import pytest
from cli_answers import content_of, error_of, refusal


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a model file that must not be run."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "model.py").write_text("raise AssertionError('was run')\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ("nowhere.py", ["advisor: error: nowhere.py: no such file"]),
        ("notes.txt", ["notes.txt: not a model file", "a .keras file, a SavedModel directory"]),
        ("theirs", ["theirs: a directory without a saved_model.pb"]),
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
def test_what_cannot_be_done_is_refused_before_work(advisor, here, monkeypatch, words, messages):
    (here / "notes.txt").write_text("not Python")
    (here / "theirs").mkdir()
    (here / "theirs" / "thesis.tex").write_text("years of work")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    before = content_of(here)
    error = " ".join(refusal(advisor("analyze", *words.split())).replace("│", " ").split())
    assert all(message in error for message in messages), error
    assert content_of(here) == before


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
def test_what_names_no_hosts_is_one_error(here, command, words, problem):
    assert problem in " ".join(error_of(*command.split(), *words.split()))
