"""Files of a service on its host: the lock of whoever uses it, and what is sent and fetched."""

import os
from pathlib import Path

import pytest

from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.remote_hosts.host_files import PIECE_BYTES, ScratchFiles
from placement_advisor.remote_hosts.service import sole_use


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def lock_file(cache):
    (file,) = (cache / "placement-advisor" / "hosts").iterdir()
    return file


def test_whoever_comes_second_is_told_who_came_first_unless_that_was_killed(cache):
    with (
        sole_use("erika on laptop"),
        pytest.raises(TestbedError, match=rf"process {os.getpid()}\) .* from erika on laptop"),
        sole_use("max on desktop"),
    ):
        pass
    with sole_use("max on desktop"):
        assert "max on desktop" in lock_file(cache).read_text()
    assert lock_file(cache).read_text() == ""
    with sole_use("erika on laptop"):
        pass
    lock_file(cache).write_text("erika (process 1) since now, from laptop")
    with sole_use("max on desktop"):
        assert "erika" not in lock_file(cache).read_text()


def test_a_lock_whose_owner_has_not_written_yet_counts(cache):
    with sole_use("erika on laptop"):
        lock_file(cache).write_text("")
        with pytest.raises(TestbedError, match="in use by another analysis"), sole_use("max"):
            pass


def test_a_host_where_nothing_can_be_written_can_be_used(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    with sole_use("erika on laptop"), sole_use("max on desktop"):
        assert Path(os.devnull).is_char_device()


def test_a_link_in_the_place_of_the_lock_is_not_followed(cache):
    with sole_use("erika on laptop"):
        pass
    file, other = lock_file(cache), cache / "precious"
    other.write_text("kept")
    file.unlink()
    file.symlink_to(other)
    with sole_use("erika on laptop"):
        assert other.read_text() == "kept"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "scratch").mkdir()
    return ScratchFiles(tmp_path / "scratch")


def test_files_are_written_and_read_in_pieces_alone_or_below_a_folder(files, tmp_path):
    path = files.put(3, ("model.py",), b"x = ", False)
    assert path == str(tmp_path / "scratch" / "sent-3" / "model.py")
    assert files.put(3, ("model.py",), b"1\n", True) == path
    assert [files.get(path, offset) for offset in (0, 4, 6)] == [b"x = 1\n", b"1\n", b""]
    path = files.put(0, ("large",), b"x" * (PIECE_BYTES + 1), False)
    assert len(files.get(path, 0)) == PIECE_BYTES
    folder = str(tmp_path / "scratch" / "sent-1" / "bundle")
    assert files.put(1, ("bundle", "b", "data"), b"2", False) == folder
    assert files.get(f"{folder}/b/data", 0) == b"2"


@pytest.mark.parametrize("parts", [("..", "x"), ("a", ".."), ("/x",), ("",), ("a", "b/../../x")])
def test_nothing_is_written_elsewhere(files, tmp_path, parts):
    with pytest.raises(ValueError, match="is no name of a file"):
        files.put(0, parts, b"1", False)
    assert [path.name for path in tmp_path.rglob("*")] == ["scratch"]


def test_nothing_is_read_from_elsewhere_not_even_by_a_link(files, tmp_path):
    (tmp_path / "secret").write_text("1")
    (tmp_path / "scratch" / "link").symlink_to(tmp_path / "secret")
    for path in ("secret", "scratch/../secret", "scratch/link"):
        with pytest.raises(AdvisorError, match="does not lie in the folder of this analysis"):
            files.get(str(tmp_path / path), 0)


def test_what_cannot_be_written_or_read_is_said(files):
    path = files.put(0, ("a",), b"1", False)
    with pytest.raises(AdvisorError, match=r"sent-0/a: Not a directory|sent-0/a.*File exists"):
        files.put(0, ("a", "b"), b"1", False)
    with pytest.raises(AdvisorError, match="cannot be read: No such file"):
        files.get(f"{path}b", 0)
