"""Files that others wrote: plain ones of a size that can be read, or one error."""

import os
from pathlib import Path

import pytest

from placement_advisor.files import untrusted
from placement_advisor.files.untrusted import mapped, read_plain

READERS = [lambda path: read_plain(path, 5), mapped]


@pytest.fixture(params=READERS, ids=["content", "mapped"])
def read(request):
    """Reads a file, whole or mapped."""
    return lambda path: bytes(request.param(path))


@pytest.mark.parametrize("data", [b"", b"12345"])
def test_a_plain_file_is_read(tmp_path, read, data):
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "link").symlink_to("file")
    assert read(tmp_path / "link") == data


def test_all_else_is_named(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for name, problem in {
        "": "not a file",
        "pipe": "not a file",
        "device": "not a file",
        "gone": "No such file or directory",
        "loop": "Too many levels of symbolic links",
    }.items():
        with pytest.raises(OSError, match=problem) as caught:
            read(tmp_path / name)
        assert caught.value.strerror == problem
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_file_that_is_too_large_is_named(tmp_path, read, monkeypatch):
    monkeypatch.setattr(untrusted, "MAX_MAPPED_BYTES", 5)
    (tmp_path / "file").write_bytes(b"123456")
    with pytest.raises(OSError, match="more than 0 MB"):
        read(tmp_path / "file")
