from __future__ import annotations

from pathlib import Path

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.output_folder import output_folder


def write(folder: Path, *, version: str) -> None:
    with output_folder(folder) as staging:
        (staging / "analysis.json").write_text(version)
        (staging / "placements").mkdir()
        (staging / "placements" / f"{version}.json").write_text(version)


def fail(folder: Path, error: BaseException) -> None:
    with output_folder(folder) as staging:
        (staging / "analysis.json").write_text("broken")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_content_appears_only_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    with output_folder(folder) as staging:
        (staging / "analysis.json").write_text("{}")
        assert not (folder / "analysis.json").exists()
    assert names(folder) == ["analysis.json"]


def test_a_failure_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "deep" / "out", KeyboardInterrupt())
    assert names(tmp_path) == []


def test_a_failure_leaves_an_earlier_analysis_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "out", version="first")
    before = names(tmp_path)
    with pytest.raises(KeyError):
        fail(tmp_path / "out", KeyError())
    assert names(tmp_path) == before
    assert (tmp_path / "out" / "analysis.json").read_text() == "first"


def test_an_earlier_analysis_is_replaced_as_a_whole_and_notes_beside_it_stay(
    tmp_path: Path,
) -> None:
    write(tmp_path, version="first")
    (tmp_path / "report.md").write_text("of the first")
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, version="second")
    assert names(tmp_path) == ["analysis.json", "notes.txt", "placements", "placements/second.json"]
    assert (tmp_path / "analysis.json").read_text() == "second"


def test_the_current_folder_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(), version="first")
    write(Path(), version="second")
    assert (tmp_path / "analysis.json").read_text() == "second"


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", version="first")
    write(tmp_path / "link", version="second")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "analysis.json").read_text() == "second"


def test_what_a_killed_analysis_left_is_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / ".advisor-x1").mkdir()
    write(tmp_path, version="first")
    assert (tmp_path / "analysis.json").exists()


def test_a_folder_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(AdvisorError, match="not the output of an earlier analysis"):
        write(tmp_path, version="first")
    assert names(tmp_path) == ["thesis.tex"]
