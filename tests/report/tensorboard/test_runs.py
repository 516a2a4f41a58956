from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from placement_advisor.files.output import DETAILS, OVERVIEW, output_folder
from placement_advisor.report.find_analysis import find_runs

if TYPE_CHECKING:
    from pathlib import Path

_KILLED = """
import os, sys
from pathlib import Path
from placement_advisor.files.output import output_folder
with output_folder(Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""


def write(folder: Path, text: str = "{}") -> Path:
    (folder / DETAILS).mkdir(parents=True)
    (folder / OVERVIEW).write_text(text)
    (folder / DETAILS / "towers.json").write_text("of towers")
    return folder


def names(logdir: Path) -> list[str]:
    return [run.name for run in find_runs(logdir)]


def test_analyses_are_found_under_a_log_directory_and_named_by_their_folders(
    tmp_path: Path,
) -> None:
    write(tmp_path / "wide" / "tensorboard")
    write(tmp_path / "group" / "deep" / "tensorboard")
    (tmp_path / "empty").mkdir()
    assert names(tmp_path) == ["wide", "group/deep"]


def test_the_log_directory_may_be_that_of_one_analysis(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "tensorboard", '{"doing": null}')
    for logdir in (tmp_path / "mine", tmp_path / "mine" / "tensorboard"):
        (run,) = find_runs(logdir)
        assert (run.name, run.overview()) == ("mine", b'{"doing": null}')
        assert run.details("towers") == b"of towers"
        assert run.changed_ns > 0
    write(tmp_path / "moved")
    assert names(tmp_path / "moved") == ["moved"]


def test_one_that_is_not_complete_yet_is_found_as_running(tmp_path: Path) -> None:
    with output_folder(tmp_path / "mine") as staging:
        write(staging / "tensorboard")
        (staging / "analysis.json").write_text("{}")
        (running,) = find_runs(tmp_path)
        assert running.name == "mine (running)"
        assert running.is_running
    (complete,) = find_runs(tmp_path)
    assert complete.name == "mine"
    assert not complete.is_running
    assert running.overview() is None
    assert running.changed_ns == 0


def test_one_whose_command_was_killed_is_not_found(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "mine")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "mine").iterdir()
    write(left / "tensorboard")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "candidate",
    ["single", "", ".", "../analysis", "../../../../secret", "/etc/hostname", "a\0b", "x" * 5_000],
)
def test_no_name_of_a_candidate_leads_elsewhere(tmp_path: Path, candidate: str) -> None:
    (tmp_path / "secret.json").write_text("secret")
    write(tmp_path / "log")
    (run,) = find_runs(tmp_path / "log")
    assert run.details(candidate) is None


def test_links_out_of_the_log_directory_are_not_followed(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere")
    log = tmp_path / "log"
    (log / "plugins").mkdir(parents=True)
    (log / "run").symlink_to(elsewhere)
    (log / "plugins" / "placement").symlink_to(elsewhere / "plugins" / "placement")
    assert names(log) == []

    inside = write(log / "other")
    (inside / DETAILS / "out.json").symlink_to(elsewhere / OVERVIEW)
    (run,) = find_runs(log)
    assert run.details("out") is None


def test_files_larger_than_any_of_an_analysis_and_pipes_are_not_served(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (run,) = find_runs(tmp_path)
    for name in (OVERVIEW, f"{DETAILS}/towers.json"):
        os.truncate(folder / name, 3_000_000_000)  # Of holes alone: it takes no disk.
    os.mkfifo(folder / DETAILS / "pipe.json")
    tracemalloc.start()
    try:
        assert [run.overview(), run.details("towers"), run.details("pipe")] == [None] * 3
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 300_000_000


def test_a_log_directory_of_very_many_folders_is_given_up_on(tmp_path: Path) -> None:
    for i in range(50):
        for j in range(50):
            (tmp_path / f"{i:02}" / f"{j:02}").mkdir(parents=True)
    write(tmp_path / "99" / "last" / "tensorboard")
    assert names(tmp_path) == []
    write(tmp_path / "00" / "tensorboard")
    assert names(tmp_path) == ["00"]
