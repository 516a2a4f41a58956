import stat
from pathlib import Path

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import output_file

ELSEWHERE = Path("elsewhere")


def write(path, text, read=ELSEWHERE):
    with output_file(path, option="-o", read=read) as put:
        put(lambda place: place.write_text(text))


def test_the_file_is_there_at_the_end_and_nothing_else(tmp_path):
    write(tmp_path / "out", "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "new")]


def test_others_may_read_it_as_any_file(tmp_path):
    write(tmp_path / "out", "new")
    (tmp_path / "plain").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "plain")]
    assert modes[0] == modes[1]


def test_an_existing_file_is_replaced_but_not_before_the_new_one_is_complete(tmp_path):
    (tmp_path / "out").write_text("old")
    with (
        pytest.raises(ZeroDivisionError),
        output_file(tmp_path / "out", option="-o", read=ELSEWHERE) as put,
    ):
        put(lambda place: place.write_text(f"half {1 / 0}"))
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("out", "old")]
    write(tmp_path / "out", "new")
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
    with (
        pytest.raises(AdvisorError, match=message) as error,
        output_file(tmp_path / name, option="-o", read=ELSEWHERE),
    ):
        pytest.fail("work was done")
    assert error.value.message.startswith(f"{tmp_path / name}: cannot be written: ")
    assert error.value.hint == "choose another file with -o"


def test_a_device_is_no_place_for_a_file():
    with pytest.raises(AdvisorError, match="no plain file"):
        write(Path("/dev/null"), "new")


def test_what_is_read_is_not_overwritten(tmp_path):
    (tmp_path / "model.py").write_text("model")
    (tmp_path / "link").symlink_to("model.py")
    for name in ("model.py", "link"):
        with pytest.raises(
            AdvisorError, match="is an input of this command and is not overwritten"
        ):
            write(tmp_path / name, "new", read=tmp_path / "model.py")
    assert (tmp_path / "model.py").read_text() == "model"


def test_a_disk_that_fills_up_is_named_with_the_file(tmp_path):
    def full(_):
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(AdvisorError, match="out: cannot be written: No space left"),
        output_file(tmp_path / "out", option="-o", read=ELSEWHERE) as put,
    ):
        put(full)
    assert list(tmp_path.iterdir()) == []
