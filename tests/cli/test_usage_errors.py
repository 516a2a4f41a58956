from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_runs import Ran


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.fixture
def refused(
    advisor: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
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

    def run(*words: str) -> str:
        before = tree(tmp_path)
        ran = advisor("analyze", *words)
        assert ran.code == 2
        assert ran.out == ""
        assert "Traceback" not in ran.err
        assert tree(tmp_path) == before
        return " ".join(ran.err.replace("│", " ").split())

    return run


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("nowhere.py",), ["advisor: error: nowhere.py: no such file"]),
        (
            ("notes.txt",),
            [
                "notes.txt: not a model file",
                "a .py file that builds a model, a .keras file, a SavedModel directory",
            ],
        ),
        (("theirs",), ["theirs: a directory without a saved_model.pb"]),
        ((":model",), ["':model': no file given"]),
        (("exported/saved_model.pb",), ["part of a SavedModel"]),
        (("model.py", "--devices", "1"), ["--devices", "greater than or equal to 2"]),
        (
            ("model.py", "--candidates", "towers,towrs"),
            [
                "'towrs'",
                "single, as-written, towers, towers-forward-only, pipeline, parameters-on-host",
            ],
        ),
        (("model.py", "--candidates", ","), ["--candidates names none"]),
        (("model.py", "--outputs", ","), ["--outputs names none"]),
        (
            ("model.py", "--testbed", "gpus"),
            ["2 devices asked for, 1 GPUs found", "--testbed workers"],
        ),
        (("model.py", "--steps", "0"), ["--steps"]),
        (("model.py", "--rounds", "x"), ["--rounds"]),
        (("model.py", "--speed", "9"), ["--speed"]),
        (("model.py", "--ratios", "3/2"), ["--ratios 3/2: not numbers"]),
        (
            ("model.py", "--ratios", "3:2:1", "--devices", "2", "--no-run"),
            ["--ratios: 3 ratios for 2 devices"],
        ),
        (
            ("model.py", "-o", "notes.txt/sub/out"),
            [
                "notes.txt/sub/out: cannot be written: notes.txt is a file",
                "choose another folder with -o",
            ],
        ),
        (("model.py", "-o", "/proc/advisor/out"), ["/proc/advisor/out: cannot be written"]),
        (("model.py", "-o", "notes.txt"), ["notes.txt is a file"]),
        (
            ("model.py", "-o", "theirs"),
            ["theirs: not empty, and not the output of an earlier analysis"],
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(
    refused: Callable[..., str], words: tuple[str, ...], messages: list[str]
) -> None:
    error = refused(*words)
    assert all(message in error for message in messages), error


def test_the_help_of_check_names_the_table_of_its_settings(advisor: Callable[..., Ran]) -> None:
    assert "[tool.advisor]" in advisor("check", "--help").out
