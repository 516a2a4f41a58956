import os
from pathlib import Path

import pytest

from placement_advisor.errors import TestbedError
from placement_advisor.remote_hosts.service import sole_use


@pytest.fixture(autouse=True)
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
