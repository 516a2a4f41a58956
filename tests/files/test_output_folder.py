import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import output_folder


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


def test_content_appears_only_at_the_end(tmp_path):
    folder = tmp_path / "deep" / "out"
    with output_folder(folder) as staging:
        (staging / "analysis.json").write_text("{}")
        assert not (folder / "analysis.json").exists()
    assert names(folder) == ["analysis.json"]


def test_a_failure_leaves_no_folder_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "deep" / "out", KeyboardInterrupt())
    assert names(tmp_path) == []


def test_a_failure_leaves_an_earlier_analysis_as_it_was(tmp_path):
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


def test_the_current_folder_can_be_written_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path(), version="first")
    write(Path(), version="second")
    assert (tmp_path / "analysis.json").read_text() == "second"


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", version="first")
    write(tmp_path / "link", version="second")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "analysis.json").read_text() == "second"


def test_what_a_killed_analysis_left_is_no_reason_to_refuse(tmp_path):
    (tmp_path / ".advisor-x1").mkdir()
    write(tmp_path, version="first")
    assert (tmp_path / "analysis.json").exists()


def test_a_folder_with_other_content_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(AdvisorError, match="not the output of an earlier analysis"):
        write(tmp_path, version="first")
    assert names(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("is_done", [False, True])
def test_an_interruption_while_the_content_is_moved_leaves_all_as_it_was(
    tmp_path, monkeypatch, number, is_done
):
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
NAMESPACES = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)


@pytest.mark.skipif(NAMESPACES.returncode != 0, reason="the system refuses a mount namespace")
def test_a_disk_that_fills_up_is_one_error(tmp_path):
    full = f"mount -t tmpfs -o size=4k tmpfs {tmp_path} && head -c 4096 /dev/zero > {tmp_path}/a"
    command = ["unshare", "--mount", "sh", "-c", f'{full} && exec "$@"', "-"]
    ran = subprocess.run(
        [*command, sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        f"{tmp_path}/out: cannot be written: No space left on device",
        "['a']",
    ]


def test_an_output_that_vanishes_is_one_error(tmp_path):
    def analyse():
        with output_folder(tmp_path / "out") as staging:
            shutil.rmtree(tmp_path / "out")
            (staging / "report.md").write_text("x")

    with pytest.raises(AdvisorError, match="out: cannot be written: No such file or directory"):
        analyse()


def test_other_errors_are_no_matter_of_the_folder(tmp_path):
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
