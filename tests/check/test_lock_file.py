"""The lock file: what is written is read again, and whatever else is there is one clear error."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_cases import ONE, TWO, cut, layer, record, records

from placement_advisor.check.lock_file import lock_text, read_lock
from placement_advisor.check.lock_record import MAX_CUTS, LayerRecord
from placement_advisor.errors import AdvisorError

LOCKED = {"models/ranker.py:step": record(cuts=(cut("a", 5), cut("a", 5), cut("b", None)))}
TEXT = """\
{
  "models": {
    "models/ranker.py:step": {
      "advisor": "0.1.0",
      "bytes_across_per_step": 1000000,
      "copies_per_step": 1,
      "cuts": [
        {"bytes": 5, "from": "GPU:0", "tensor": "a", "times": 2, "to": "GPU:1"},
        {"bytes": null, "from": "GPU:0", "tensor": "b", "to": "GPU:1"}
      ],
      "devices": "00ff",
      "graph": "a0",
      "hardware": "2xT4",
      "layers": {
        "lower": {"backward": "GPU:0", "busy_us": 100, "forward": "GPU:0", "made_of": "11"},
        "upper": {"backward": "GPU:1", "busy_us": 100, "forward": "GPU:1", "made_of": "22"}
      },
      "on_host": {},
      "peak_memory_bytes": {
        "GPU:0": {"variables": 900000000},
        "GPU:1": {"variables": 800000000}
      },
      "placed": "b0",
      "placement": "as-written",
      "single_step_us": 1500,
      "step_us": 1000,
      "tensorflow": "2.21.0",
      "verdict": "split"
    }
  },
  "schema_version": 1
}
"""
ANY_PATH = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def refused(tmp_path):
    """Returns what is wrong with a lock file, which stays as it is."""

    def read(content):
        path = tmp_path / "placements.lock.json"
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        with pytest.raises(AdvisorError) as caught:
            read_lock(path)
        assert path.read_bytes() == data
        assert caught.value.message.startswith(str(path))
        assert "\n" not in caught.value.message
        caught.value.message = caught.value.message.removeprefix(f"{path}: ")
        return caught.value

    return read


def edited(**changes):
    """Return a lock file with other fields in its record."""
    document = json.loads(TEXT)
    document["models"]["models/ranker.py:step"] |= changes
    return json.dumps(document)


def test_a_lock_file_is_written_to_be_read_in_a_diff():
    assert lock_text(LOCKED) == TEXT
    moved = record(layers={"lower": layer("11", ONE), "upper": layer("22", TWO, backward=ONE)})
    before, after = (lock_text({"m": each}).splitlines() for each in (record(), moved))
    (line,) = set(after) - set(before)
    assert line.strip().startswith('"upper": {"backward": "GPU:0", ')
    several = record(layers={"a": LayerRecord(forward=(ONE, TWO), fingerprint="1", busy_us=2)})
    text = lock_text({"m": several})
    assert '"a": {"busy_us": 2, "forward": ["GPU:0", "GPU:1"], "made_of": "1"}' in text


def test_no_file_has_no_records_and_markers_within_names_are_no_conflict(tmp_path):
    assert read_lock(tmp_path / "placements.lock.json") == {}
    found = {"m": replace(record(), placement="\n<<<<<<< a\n=======\n")}
    (tmp_path / "lock").write_text(lock_text(found))
    assert read_lock(tmp_path / "lock") == found


@ANY_PATH
@given(found=st.dictionaries(st.text(max_size=9), records, max_size=2))
def test_any_records_are_read_as_they_were_written(tmp_path, found):
    # Equal tensors stand in one line, wherever they were.
    found = {
        name: replace(each, cuts=tuple(sorted(each.cuts, key=repr))) for name, each in found.items()
    }
    (tmp_path / "lock").write_text(lock_text(found), encoding="utf-8")
    assert read_lock(tmp_path / "lock") == found


@given(found=st.dictionaries(st.text(max_size=9), records, max_size=3), order=st.randoms())
def test_equal_records_give_equal_bytes(found, order):
    shuffled = dict(order.sample(list(found.items()), len(found)))
    assert lock_text(shuffled) == lock_text(found)


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        ({"step_us": -1}, "step_us", "-1 is not a whole number"),
        ({"layers": {"x": {"made_of": "1", "busy_us": 1}}}, "layers.x", "no device"),
        ({"layers": {"x": {"forward": [], "made_of": "1", "busy_us": 1}}}, "layers.x.forward",
         "[] is not a device or a list of devices"),
        ({"layers": {"x": {"forward": "a", "made_of": "1"}}}, "layers.x", "no field 'busy_us'"),
        ({"cuts": [{"tensor": "a", "bytes": 1, "from": "a", "to": "b", "times": 10**15}]},
         "cuts[0].times", "is not a number of copies from 1 to 100"),
        ({"verdict": "fine"}, "verdict", "'fine' is not split, single or cannot-tell"),
        ({"cost": 3}, "cost", "unknown key; there are hardware, "),
    ],
    ids=str,
)  # fmt: skip
def test_what_hands_have_edited_is_named_with_its_place(refused, changes, place, problem):
    error = refused(edited(**changes))
    assert error.message.startswith(f"models.'models/ranker.py:step'.{place}: ")
    assert problem in error.message
    assert "delete it and run `advisor check --update`" in error.hint


def test_what_this_version_does_not_know_is_refused(refused):
    text = TEXT.replace('"schema_version"', '"note": 1,\n  "schema_version"')
    assert "note: unknown key; there are schema_version, models" in refused(text).message
    error = refused(TEXT.replace('"schema_version": 1', '"schema_version": 2, "more": {}'))
    newer = "schema_version: 2 is newer than the 1 that this advisor reads; update it"
    assert error.message == newer
    assert error.hint is None or "--update" not in error.hint


@pytest.mark.parametrize(
    "markers",
    [["<<<<<<< a", "=======", ">>>>>>> b"], ["<<<<<<<"], ["======="], [">>>>>>>"], ["|||||||"]],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_merge_conflict_or_what_is_left_of_one_is_named_with_its_first_line(
    refused, markers, end
):
    lines = TEXT.splitlines()
    lines[4:4] = markers
    error = refused(end.join(lines))
    assert error.message == "merge conflict at line 5"
    assert error.hint == "take either side, then run `advisor check --update`"


def test_a_file_cut_off_anywhere_is_refused(refused):
    whole = TEXT.rstrip()
    for end in range(len(whole)):
        error = refused(whole[:end])
        assert error.message.startswith("not valid JSON: EOF while parsing "), end


def test_tensors_are_never_more_than_a_record_holds(refused):
    row = {"tensor": "a", "bytes": 1, "from": "a", "to": "b", "times": MAX_CUTS + 1}
    assert "times" in refused(edited(cuts=[row])).message
    half = row | {"times": MAX_CUTS // 2}
    assert "cuts: more than 100 tensors" in refused(edited(cuts=[half, half, half])).message
