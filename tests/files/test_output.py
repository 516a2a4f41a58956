"""Outputs that are complete or not there: files, folders, and what is left of the killed."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from program_runs import run_program
from real_runs import needs_mounts

from placement_advisor.errors import AdvisorError
from placement_advisor.files import output
from placement_advisor.files.output import is_left_behind, output_file, output_folder, own_folder

ELSEWHERE = Path("elsewhere")


def write_file(path, text, read=ELSEWHERE):
    with output_file(path, option="-o", read=read) as put:
        put(lambda place: place.write_text(text))


def test_the_file_is_there_at_the_end_for_all_to_read_and_nothing_else(tmp_path):
    write_file(tmp_path / "out", "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "new")]
    write_file(tmp_path / "out", "new")
    (tmp_path / "plain").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "plain")]
    assert modes[0] == modes[1]


def test_an_existing_file_is_replaced_but_not_before_the_new_one_is_complete(tmp_path):
    (tmp_path / "out").write_text("old")
    out = output_file(tmp_path / "out", option="-o", read=ELSEWHERE)
    with pytest.raises(ZeroDivisionError), out as put:
        put(lambda place: place.write_text(f"half {1 / 0}"))
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "old")]
    write_file(tmp_path / "out", "new")
    assert (tmp_path / "out").read_text() == "new"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/out", "No such file or directory"),
        ("file/out", "Not a directory"),
        ("folder", "it is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(name, message, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    out = output_file(tmp_path / name, option="-o", read=ELSEWHERE)
    with pytest.raises(AdvisorError, match=message) as error, out:
        pytest.fail("work was done")
    assert error.value.message.startswith(f"{tmp_path / name}: cannot be written: ")
    assert error.value.hint == "choose another file with -o"


def test_what_is_read_or_a_device_is_not_overwritten(tmp_path):
    with pytest.raises(AdvisorError, match="no plain file"):
        write_file(Path("/dev/null"), "new")
    (tmp_path / "model.py").write_text("model")
    (tmp_path / "link").symlink_to("model.py")
    for name in ("model.py", "link"):
        with pytest.raises(AdvisorError, match="an input of this command and is not overwritten"):
            write_file(tmp_path / name, "new", read=tmp_path / "model.py")
    assert (tmp_path / "model.py").read_text() == "model"


def test_a_disk_that_fills_up_is_named_with_the_file(tmp_path):
    def full(_):
        raise OSError(28, "No space left on device")

    out = output_file(tmp_path / "out", option="-o", read=ELSEWHERE)
    with pytest.raises(AdvisorError, match="out: cannot be written: No space left"), out as put:
        put(full)
    assert list(tmp_path.iterdir()) == []


def write(folder, *, version):
    with output_folder(folder) as staging:
        (staging / "analysis.json").write_text(version)
        (staging / "placements").mkdir()
        (staging / "placements" / f"{version}.json").write_text(version)


def fail(folder, error):
    with output_folder(folder) as staging:
        (staging / "analysis.json").write_text("broken")
        raise error


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_failure_leaves_no_folder_or_the_earlier_analysis(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "deep" / "out", KeyboardInterrupt())
    assert names(tmp_path) == []
    write(tmp_path / "out", version="first")
    before = names(tmp_path)
    with pytest.raises(KeyError):
        fail(tmp_path / "out", KeyError())
    assert names(tmp_path) == before
    assert (tmp_path / "out" / "analysis.json").read_text() == "first"


def test_an_earlier_analysis_is_replaced_as_a_whole_and_notes_beside_it_stay(tmp_path):
    write(tmp_path, version="first")
    (tmp_path / "report.md").write_text("of the first")
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, version="second")
    assert names(tmp_path) == ["analysis.json", "notes.txt", "placements", "placements/second.json"]
    assert (tmp_path / "analysis.json").read_text() == "second"


def test_the_current_folder_and_a_link_to_one_can_be_written_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path(), version="first")
    write(Path(), version="second")
    assert (tmp_path / "analysis.json").read_text() == "second"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", version="first")
    write(tmp_path / "link", version="second")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "analysis.json").read_text() == "second"


def test_what_a_killed_analysis_left_is_no_reason_to_refuse_and_other_content_is(tmp_path):
    (tmp_path / "killed" / ".advisor-x1").mkdir(parents=True)
    write(tmp_path / "killed", version="first")
    assert (tmp_path / "killed" / "analysis.json").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    with pytest.raises(AdvisorError, match="not the output of an earlier analysis"):
        write(tmp_path / "other", version="first")
    assert names(tmp_path / "other") == ["thesis.tex"]


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("is_done", [False, True])
def test_an_interruption_of_the_move_leaves_all_as_it_was(tmp_path, monkeypatch, number, is_done):
    """Three entries of the first go and two of the second come; one of these is interrupted."""
    write(tmp_path, version="first")
    (tmp_path / "report.md").write_text("of the first")
    before, rename, moved = names(tmp_path), Path.rename, []

    def interrupted(path, target):
        if path.suffix or path.name == "placements":
            moved.append(path)
        if len(moved) != number:
            return rename(path, target)
        moved.append(path)  # Once is enough.
        if is_done:
            rename(path, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, version="second")
    assert names(tmp_path) == before
    assert (tmp_path / "analysis.json").read_text() == "first"


FULL = """
import sys
from pathlib import Path
from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import output_folder
try:
    with output_folder(Path(sys.argv[1]) / "out") as staging:
        (staging / "report.md").write_text("x" * 10_000)
except AdvisorError as error:
    print(error.message)
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()))
"""


@needs_mounts
def test_a_disk_that_fills_up_is_one_error(tmp_path):
    full = f"mount -t tmpfs -o size=4k tmpfs {tmp_path} && head -c 4096 /dev/zero > {tmp_path}/a"
    command = ["unshare", "--mount", "sh", "-c", f'{full} && exec "$@"', "-"]
    done = run_program(*command, sys.executable, "-c", FULL, str(tmp_path))
    assert done.stderr == ""
    full = f"{tmp_path}/out: cannot be written: No space left on device"
    assert done.stdout.splitlines() == [full, "['a']"]


def test_an_output_that_vanishes_is_one_error_and_others_are_no_matter_of_the_folder(tmp_path):
    def analyse():
        with output_folder(tmp_path / "out") as staging:
            shutil.rmtree(tmp_path / "out")
            (staging / "report.md").write_text("x")

    with pytest.raises(AdvisorError, match="out: cannot be written: No such file or directory"):
        analyse()
    with pytest.raises(FileNotFoundError, match="elsewhere"), output_folder(tmp_path / "out"):
        (tmp_path / "elsewhere").read_text()


def test_two_analyses_that_end_at_once_do_not_mix(tmp_path):
    """Each of some processes that end again and again writes files that all say its number."""
    code = """
import sys
from pathlib import Path
from placement_advisor.files import output
for turn in range(40):
    with output.output_folder(Path(sys.argv[1])) as staging:
        for name in output.CONTENT:
            (staging / name).write_text(f"{sys.argv[2]} in {turn}")
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [process.wait() for process in both] == [0, 0, 0]
    assert len({path.read_text() for path in tmp_path.iterdir()}) == 1


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
        assert process.stdout.readline()
        yield process
        process.kill()


def test_a_folder_is_gone_after_the_block_and_one_that_no_lock_file_tells_of_stays(tmp_path):
    with own_folder(tmp_path) as folder:
        (folder / "half").write_text("written")
        assert not is_left_behind(folder)
        assert output.owned_folders() == [str(folder)]
    assert list(tmp_path.iterdir()) == []
    assert output.owned_folders() == []
    (tmp_path / ".advisor-old").mkdir()
    with own_folder(tmp_path):
        pass
    assert (tmp_path / ".advisor-old").exists()


def test_the_folder_of_a_process_stays_while_it_runs_and_goes_once_it_was_killed(tmp_path, owner):
    (theirs,) = tmp_path.iterdir()
    assert not is_left_behind(theirs)
    with own_folder(tmp_path):
        assert (theirs / "half").exists()
    owner.kill()
    owner.wait()
    assert is_left_behind(theirs)
    with own_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


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
