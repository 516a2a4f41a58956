import os
import shutil
import signal
import subprocess
import sys

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.files import output
from placement_advisor.files.output import is_left_behind, output_folder, own_folder

_OWNER = """
import sys, time
from pathlib import Path
from placement_advisor.files.output import own_folder
with own_folder(Path(sys.argv[1])) as folder:
    (folder / "half").mkdir()
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that has a folder of its own in ``tmp_path``."""
    command = [sys.executable, "-c", _OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.kill()


def end(owner):
    owner.send_signal(signal.SIGKILL)
    owner.wait()


def test_a_folder_is_gone_after_the_block(tmp_path):
    with own_folder(tmp_path) as folder:
        (folder / "half").write_text("written")
        assert not is_left_behind(folder)
        assert output.owned_folders() == [str(folder)]
    assert list(tmp_path.iterdir()) == []
    assert output.owned_folders() == []


def test_the_folder_of_a_process_that_runs_stays(tmp_path, owner):
    (theirs,) = tmp_path.iterdir()
    assert not is_left_behind(theirs)
    with own_folder(tmp_path):
        assert (theirs / "half").exists()


def test_the_folder_of_a_process_that_was_killed_goes_with_the_next(tmp_path, owner):
    (theirs,) = tmp_path.iterdir()
    end(owner)
    assert is_left_behind(theirs)
    with own_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_no_lock_file_tells_of_stays(tmp_path):
    (tmp_path / ".advisor-old").mkdir()
    with own_folder(tmp_path):
        pass
    assert (tmp_path / ".advisor-old").exists()


def test_where_files_cannot_be_locked_nothing_is_taken_for_left_behind(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError("no locks here")

    monkeypatch.setattr(output.fcntl, "flock", refuse)
    with own_folder(tmp_path) as folder:
        assert not is_left_behind(folder)
        with own_folder(tmp_path):
            assert folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_anybody_else_is_followed_or_waited_for(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / ".owner").write_text("")
    log = tmp_path / "log"
    log.mkdir()
    (log / ".advisor-link").symlink_to(kept)
    (log / ".advisor-pipe").mkdir()
    os.mkfifo(log / ".advisor-pipe" / ".owner")
    (log / ".advisor-file").write_text("")
    (log / ".advisor-away").mkdir()
    (log / ".advisor-away" / ".owner").symlink_to(kept / ".owner")
    with own_folder(log):
        pass
    assert (kept / ".owner").exists()
    assert sorted(path.name for path in log.iterdir()) == [
        ".advisor-away", ".advisor-file", ".advisor-link"
    ]  # fmt: skip


def test_a_folder_that_others_removed_and_made_again_is_told(tmp_path):
    def write():
        with output_folder(tmp_path / "out") as staging:
            shutil.rmtree(tmp_path / "out")
            staging.mkdir(parents=True)
            (staging / "analysis.json").write_text("{}")

    with pytest.raises(AdvisorError, match="out: was removed while it was written to"):
        write()
    assert not list(tmp_path.glob("out/*"))
