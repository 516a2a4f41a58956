"""Lines of places, found beside the parser."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement_advisor.files.untrusted import MAX_TOML_BYTES, MisfitError, line_of, parse_toml

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
    parse_toml(TEXT)
    assert line_of(TEXT, place) == line


def test_lines_of_windows_are_counted_alike():
    assert line_of(TEXT.replace(b"\n", b"\r\n"), "links[1].latency_ns") == 15


def test_tables_written_as_a_list_have_the_line_of_the_list():
    data = b"a = 1\nlinks = [\n  {latency_ns = 1},\n]\n"
    assert line_of(data, "links[0].latency_ns") == 2


def misfit(data):
    with pytest.raises(MisfitError) as caught:
        parse_toml(data)
    return str(caught.value)


def test_what_is_no_toml_is_refused_with_its_line():
    assert misfit(b"a = 1\nb = = 2\n").startswith("line 2: not valid TOML: ")
    assert misfit(b"a = 1\nb = [\n").startswith("line 3: not valid TOML: ")
    assert misfit(b"a = 1\n\nb = '\xff'").startswith("not valid TOML: 'utf-8' codec can't decode")


def test_dates_that_cannot_be_are_refused():
    assert misfit(b"a = 2024-02-31\n").startswith("line 1: not valid TOML: ")


def test_deep_nesting_is_refused():
    assert misfit(b"a = " + b"[" * 900 + b"\n" + b"[" * 900).startswith(
        "not valid TOML: maximum recursion depth"
    )


def test_large_files_and_long_lines_are_refused_at_once():
    started = time.process_time()
    assert misfit(b"#" * (MAX_TOML_BYTES + 1)) == "more than 4 MB"
    assert misfit(b"a = 1\nb" + b".b" * 1_000_000) == "line 2: more than 1,000 characters"
    assert time.process_time() - started < 1


@given(
    st.binary(max_size=200) | st.text(alphabet="[]{}=.\"'#\\\n ab1", max_size=60).map(str.encode)
)
@example(b'"""\\"""')
def test_any_bytes_are_a_document_or_one_misfit(data):
    try:
        parse_toml(data)
    except MisfitError:
        return
    line = line_of(data, "a")
    assert line is None or 1 <= line <= data.count(b"\n") + 1
