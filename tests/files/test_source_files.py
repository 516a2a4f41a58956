"""What stands at lines of a project's files, and which scopes are around them."""

import pytest

from placement_advisor.files.source_files import SourceFiles

TEXT = """\
import tensorflow as tf
with tf.device("GPU:0"):
    def step(x):
        y = f(x)
        with tf.device(SECOND), tf.name_scope("upper"):

            z = g(
                y,
            )
            with tf.name_scope("inner"):
                z = h(z)
        with strategy.scope():
            return z
"""


@pytest.mark.parametrize(
    ("line", "scope"), [(4, None), (5, 5), (7, 5), (8, 5), (11, 5), (13, None), (2, 2)]
)
def test_a_scope_is_the_innermost_with_of_a_device_in_the_function(tmp_path, line, scope):
    (tmp_path / "m.py").write_text(TEXT)
    assert SourceFiles(tmp_path).scope("m.py", line) == scope


def test_what_stands_at_a_line_is_shown_within_reason(tmp_path):
    (tmp_path / "m.py").write_text(f"{TEXT}{'x' * 500}\n")
    files = SourceFiles(tmp_path)
    assert files.text("m.py", 4) == "y = f(x)"
    shown = files.text("m.py", 14)
    assert (len(shown), shown[-1]) == (120, "…")
    assert files.text("m.py", 15) is None
    assert files.find("m.py", "name_scope(") == 5
    assert files.find("m.py", "nowhere") == 1


def test_a_file_that_cannot_be_read_has_no_lines(tmp_path):
    files = SourceFiles(tmp_path)
    for name in ("gone.py", ".", "a\0b"):
        assert files.text(name, 1) is None
        assert files.scope(name, 1) is None
