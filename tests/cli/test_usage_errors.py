from __future__ import annotations

from typing import TYPE_CHECKING, get_type_hints

import pytest

from placement_advisor.candidates.families import NAMES
from placement_advisor.cli.analyze import analyze

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
    monkeypatch.chdir(here)

    def run(*words: str) -> str:
        before = tree(tmp_path)
        ran = advisor("analyze", *words)
        assert ran.code == 2
        assert ran.out == ""
        assert "Traceback" not in ran.err
        assert tree(tmp_path) == before
        return " ".join(ran.err.replace("│", " ").split())

    return run


def test_a_missing_file_is_named(refused: Callable[..., str]) -> None:
    assert refused("nowhere.py") == "advisor: error: nowhere.py: no such file"


def test_a_text_file_is_no_model(refused: Callable[..., str]) -> None:
    error = refused("notes.txt")
    assert "notes.txt: not a model file" in error
    assert "a .py file that builds a model, a .keras file, a SavedModel directory" in error


def test_a_folder_is_no_model(refused: Callable[..., str]) -> None:
    assert ".: a directory without a saved_model.pb" in refused(".")


def test_a_name_without_a_file_is_refused(refused: Callable[..., str]) -> None:
    assert "':model': no file given" in refused(":model")


def test_one_device_is_too_few_to_split_over(refused: Callable[..., str]) -> None:
    error = refused("model.py", "--devices", "1")
    assert "--devices" in error
    assert "greater than or equal to 2" in error


def test_an_unknown_candidate_is_answered_with_the_known(refused: Callable[..., str]) -> None:
    error = refused("model.py", "--candidates", "towers,towrs")
    assert "'towrs'" in error
    assert "single, as-written, towers, towers-forward-only, pipeline, parameters-on-host" in error


def test_the_help_of_candidates_names_every_family() -> None:
    option = get_type_hints(analyze, include_extras=True)["candidates"].__metadata__[0]
    listed = option.help.partition("try: ")[2].partition(".")[0].split(", ")
    assert listed == [name for name in NAMES if name not in ("single", "as-written")]


def test_an_empty_list_of_candidates_is_refused(refused: Callable[..., str]) -> None:
    assert "--candidates names none" in refused("model.py", "--candidates", ",")


def test_an_empty_list_of_outputs_is_refused(refused: Callable[..., str]) -> None:
    assert "--outputs names none" in refused("model.py", "--outputs", ",")


def test_the_inside_of_a_saved_model_is_answered_with_its_directory(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    inside = tmp_path / "exported" / "saved_model.pb"
    inside.parent.mkdir()
    inside.touch()
    assert "part of a SavedModel" in refused(str(inside))


def test_gpus_that_are_not_there_are_counted(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    error = refused("model.py", "--testbed", "gpus")
    assert "2 devices asked for, 1 GPUs found" in error
    assert "--testbed workers" in error


@pytest.mark.parametrize("words", [("--steps", "0"), ("--rounds", "x"), ("--speed", "9")])
def test_a_bad_option_is_named(refused: Callable[..., str], words: tuple[str, str]) -> None:
    assert words[0] in refused("model.py", *words)


def test_an_output_folder_below_a_file_is_refused_before_any_work(
    refused: Callable[..., str],
) -> None:
    error = refused("model.py", "-o", "notes.txt/sub/out")
    assert "notes.txt/sub/out: cannot be written: notes.txt is a file" in error
    assert "choose another folder with -o" in error


def test_an_output_folder_that_the_system_refuses_is_refused_before_any_work(
    refused: Callable[..., str],
) -> None:
    assert "/proc/advisor/out: cannot be written" in refused("model.py", "-o", "/proc/advisor/out")


def test_a_file_as_output_folder_is_refused(refused: Callable[..., str]) -> None:
    assert "notes.txt is a file" in refused("model.py", "-o", "notes.txt")


def test_a_folder_with_other_content_is_refused_and_left_alone(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    error = refused("model.py", "-o", str(tmp_path / "theirs"))
    assert "theirs: not empty, and not the output of an earlier analysis" in error
    assert (tmp_path / "theirs" / "thesis.tex").read_text() == "years of work"


def test_ratios_that_are_not_numbers_are_refused(refused: Callable[..., str]) -> None:
    assert "--ratios 3/2: not numbers" in refused("model.py", "--ratios", "3/2")


def test_a_ratio_for_each_device_is_needed(refused: Callable[..., str]) -> None:
    words = ("--ratios", "3:2:1", "--devices", "2", "--no-run")
    assert "--ratios: 3 ratios for 2 devices" in refused("model.py", *words)


def test_the_help_of_check_names_the_table_of_its_settings(advisor: Callable[..., Ran]) -> None:
    assert "[tool.advisor]" in advisor("check", "--help").out
