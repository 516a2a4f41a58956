"""Files that others wrote: plain ones of a size that can be read, lines of TOML, or one error."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement_advisor.files import untrusted


@pytest.fixture(params=[lambda path: untrusted.read_plain(path, 5), untrusted.mapped])
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


TEXT = b'''# [[links]] in a comment
schema_version = 1
note = """
[[links]]
latency_ns = 1
"""
[[links]]
between = [
  "a",  # latency_ns = 2
  "latency_ns = 3",
]
latency_ns = 4 # the first

[[ "links" ]]
'latency_ns' = 5
sender.per_copy_ns = 6
[links.receiver]
per_copy_ns = 7
[dispatch]
quantum_ns = 8
[ tool . advisor ]
hardware = "2xV100"
[[tool.advisor.models]]
path = "a.py"
[[tool.advisor.models]]
path = "b.py"
[tool.advisor.models.more]
deep = 9
'''


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("schema_version", 2),
        ("note", 3),
        ("links[0]", 7),
        ("links[0].between", 8),
        ("links[0].between[1]", 8),
        ("links[0].latency_ns", 12),
        ("links[1]", 14),
        ("links[1].latency_ns", 15),
        ("links[1].sender.per_copy_ns", 16),
        ("links[1].receiver.per_copy_ns", 18),
        ("links[1].channel", 14),
        ("dispatch.quantum_ns", 20),
        ("tool.advisor.hardware", 22),
        ("tool.advisor.models[0].path", 24),
        ("tool.advisor.models[1]", 25),
        ("tool.advisor.models[1].path", 26),
        ("tool.advisor.models[1].more.deep", 28),
        ("tool.advisor.nothing", 21),
        ("hosts", None),
    ],
)
def test_a_place_has_the_line_where_it_is_written(place, line):
    untrusted.parse_toml(TEXT)
    assert untrusted.line_of(TEXT, place) == line


def test_lines_of_windows_and_of_lists_are_counted_alike():
    assert untrusted.line_of(TEXT.replace(b"\n", b"\r\n"), "links[1].latency_ns") == 15
    data = b"a = 1\nlinks = [\n  {latency_ns = 1},\n]\n"
    assert untrusted.line_of(data, "links[0].latency_ns") == 2


def misfit(data):
    with pytest.raises(untrusted.MisfitError) as caught:
        untrusted.parse_toml(data)
    return str(caught.value)


def test_what_is_no_toml_is_refused_with_its_line_and_at_once():
    assert misfit(b"a = 1\nb = = 2\n").startswith("line 2: not valid TOML: ")
    assert misfit(b"a = 1\nb = [\n").startswith("line 3: not valid TOML: ")
    assert misfit(b"a = 1\n\nb = '\xff'").startswith("not valid TOML: 'utf-8' codec can't decode")
    assert misfit(b"a = 2024-02-31\n").startswith("line 1: not valid TOML: ")
    deep = b"a = " + b"[" * 900 + b"\n" + b"[" * 900
    assert misfit(deep).startswith("not valid TOML: maximum recursion depth")
    started = time.process_time()
    assert misfit(b"#" * (untrusted.MAX_TOML_BYTES + 1)) == "more than 4 MB"
    assert misfit(b"a = 1\nb" + b".b" * 1_000_000) == "line 2: more than 1,000 characters"
    assert time.process_time() - started < 1


@given(
    st.binary(max_size=200) | st.text(alphabet="[]{}=.\"'#\\\n ab1", max_size=60).map(str.encode)
)
@example(b'"""\\"""')
def test_any_bytes_are_a_document_or_one_misfit(data):
    try:
        untrusted.parse_toml(data)
    except untrusted.MisfitError:
        return
    line = untrusted.line_of(data, "a")
    assert line is None or 1 <= line <= data.count(b"\n") + 1
