"""Calibrations on file: what is saved is loaded, and what is damaged is as good as none."""

import json
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.machine.calibration import (
    BothWaysTiming,
    Calibration,
    CopyTiming,
    MemoryTiming,
    calibration_file,
    kept_calibrations,
    stored_calibration,
)
from placement_advisor.tf.run.calibration import middle

ENDS = ("worker:0", "worker:1")
PAIR = json.dumps(ENDS)
TURNS = {"size_bytes": 1, "one_way_ns": 1, "both_ways_ns": 2}
CALIBRATION = Calibration(
    links={
        ENDS: (
            CopyTiming(size_bytes=1_024, copy_ns=240_000, send_ns=50_000, receive_ns=60_000),
            CopyTiming(size_bytes=65_536, copy_ns=-3_000, send_ns=0, receive_ns=0),
        ),
        ENDS[::-1]: (CopyTiming(size_bytes=1, copy_ns=2, send_ns=None, receive_ns=None),),
    },
    both_ways={ENDS: BothWaysTiming(size_bytes=524_288, one_way_ns=400_000, both_ways_ns=600_000)},
    step_overhead_ns=350_000,
    partition_overhead_ns=80_000,
    remote_ns=400_000,
    quantum_ns=4_000_000,
    wake_ns=300_000,
    op_ns=1_100,
    reference_ns={ENDS[0]: 210_000, ENDS[1]: 215_000},
    reference_p90={ENDS[0]: 1.02, ENDS[1]: 1.35},
    memory=MemoryTiming(bytes_per_s=6e10, ratio=2.1),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache directory of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_calibration_is_kept_under_its_fingerprint_alone_and_replaced_by_a_newer_one():
    CALIBRATION.save("f", testbed="workers")
    assert stored_calibration("g") is None
    newer = replace(CALIBRATION, op_ns=7)
    path = newer.save("f", testbed="workers")
    assert stored_calibration("f") == newer
    assert list(path.parent.iterdir()) == [path]


@given(names=st.lists(st.text(max_size=5), min_size=2, max_size=2, unique=True))
def test_a_calibration_loads_back_equal_whatever_devices_are_called(tmp_path_factory, names):
    called = dict(zip(ENDS, names, strict=True))

    def by_pair(figures):
        return {(called[a], called[b]): figure for (a, b), figure in figures.items()}

    calibration = replace(
        CALIBRATION,
        links=by_pair(CALIBRATION.links),
        both_ways=by_pair(CALIBRATION.both_ways),
        reference_ns={called[name]: time for name, time in CALIBRATION.reference_ns.items()},
        reference_p90={called[name]: time for name, time in CALIBRATION.reference_p90.items()},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        calibration.save("f", testbed="workers")
        assert stored_calibration("f") == calibration


def test_the_cache_directory_is_the_one_that_the_system_names(cache, tmp_path, monkeypatch):
    assert calibration_file("f") == cache / "placement-advisor" / "calibrations" / "f.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    at_home = tmp_path / "home" / ".cache" / "placement-advisor" / "calibrations"
    assert calibration_file("f").parent == at_home


def test_without_a_home_nothing_is_kept_nor_looked_for_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 12345)  # A container's: no entry in passwd.
    with pytest.raises(OSError, match="Not a directory"):
        CALIBRATION.save("f", testbed="workers")
    assert stored_calibration("f") is None
    assert kept_calibrations() == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("op_ns", -1),
        ("reference_p90", {"worker:0": 1.0}),
        ("links", {}),
        ("reference_ns", {"worker:0": 1}),
        ("links", {PAIR: []}),
        ("both_ways", {'["a", "a"]': TURNS}),
        ("both_ways", {'["worker:0"]': TURNS}),
        ("both_ways", {"[" * 5_000: TURNS}),
        ("both_ways", {"worker:0": TURNS}),
        ("network", {"devices": {}, "remote_ns": {}, "at_once": {}}),
    ],
)
def test_a_damaged_file_is_as_good_as_none(field, wrong):
    path = CALIBRATION.save("f", testbed="workers")
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: wrong}))
    assert stored_calibration("f") is None
    assert kept_calibrations() == ()


def test_all_that_is_kept_is_listed_newest_first():
    for age, name in enumerate(("new", "older", "oldest")):
        path = CALIBRATION.save(name, testbed="workers")
        os.utime(path, ns=(0, 10**18 - age))
    kept = kept_calibrations()
    written = [(one.fingerprint, 10**18 - one.written_ns) for one in kept]
    assert written == [("new", 0), ("older", 1), ("oldest", 2)]
    assert {one.testbed for one in kept} == {"workers"}
    assert all(one.calibration == CALIBRATION for one in kept)


def test_directions_that_take_turns_take_twice_the_time():
    timing = BothWaysTiming(size_bytes=1, one_way_ns=400, both_ways_ns=800)
    assert timing.ratio == 2
    # What is not positive is noise, and gives no ratio.
    assert replace(timing, one_way_ns=0).ratio is None
    assert replace(timing, both_ways_ns=-5).ratio is None


def test_on_a_slow_machine_a_device_draws_less_and_the_middle_of_passes_is_as_usual():
    def at(factor):
        times = CALIBRATION.reference_ns.items()
        return CALIBRATION.at_speed({name: int(factor * time) for name, time in times})

    assert at(3).memory == MemoryTiming(bytes_per_s=2e10, ratio=2.1)
    assert middle([at(3), CALIBRATION, at(0.5)]) == CALIBRATION
    noisy = replace(CALIBRATION, quantum_ns=10**9)
    assert middle([at(3), noisy, at(0.5)]) == CALIBRATION


def timing(copy_ns, send_ns=None):
    return CopyTiming(size_bytes=1, copy_ns=copy_ns, send_ns=send_ns, receive_ns=None)


def test_the_middle_is_taken_number_by_number_whole_if_they_are_and_of_what_is_known():
    assert middle([timing(n) for n in (4, 100, 5)]) == timing(5)
    assert middle([timing(4), timing(7)]) == timing(6)
    rates = [MemoryTiming(bytes_per_s=rate, ratio=1.0) for rate in (1.0, 2.0)]
    assert middle(rates) == MemoryTiming(bytes_per_s=1.5, ratio=1.0)
    assert middle([timing(1), timing(1, send_ns=8), timing(1)]) == timing(1, send_ns=8)
    passes = [{"a": (timing(n), timing(10 * n))} for n in (1, 3, 2)]
    assert middle(passes) == {"a": (timing(2), timing(20))}
