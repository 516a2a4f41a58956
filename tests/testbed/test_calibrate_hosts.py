"""Which parts of several hosts are measured, and which are taken from what is kept."""

from dataclasses import replace

import pytest
from sample_hosts import ALONE, FIRST, OTHER, ROUTE, SIDEWAYS, THREE_HOSTS, TWO_HOSTS

from placement_advisor.errors import TestbedError
from placement_advisor.machine.host_figures import over_hosts
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.testbed import cost_measurement
from placement_advisor.testbed.benchmark import SilentProgress

FIGURES = {"a": FIRST, "b": ALONE, "c": OTHER}
TWO = over_hosts(TWO_HOSTS.hosts, {"a": FIRST, "b": ALONE}, {("a", "b"): ROUTE})


# A megabyte there and back.
KNOWN_NS = (15_000_000, 25_000_000)


class KnownTestbed:
    """Gives known figures, and keeps what it was asked for."""

    def __init__(self, plan, now_ns=KNOWN_NS, **instead):
        self.plan = plan
        self.core_clocks = {device.name: "token" for device in plan.devices}
        self.asked = []
        self.probed = []
        self._now_ns = now_ns
        self._instead = instead

    def call(self, function, *args, time_limit_s):
        if function.__name__ == "probe_route":
            *_, size_bytes = args
            self.probed.append(size_bytes)
            return self._now_ns
        *devices, clocks, drives = args
        assert clocks == self.core_clocks
        hosts = tuple(names[0].partition(":")[0] for names in devices)
        assert drives == (hosts[0] == self.plan.hosts[0].name)
        self.asked.append(hosts)
        if function.__name__ in self._instead:
            return self._instead[function.__name__]
        if function.__name__ == "calibrate_host":
            return FIGURES[hosts[0]]
        return ROUTE if drives else SIDEWAYS


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def measured(testbed, *, anew=False):
    return cost_measurement.calibration_of(testbed, SilentProgress(), anew=anew)


def asked(now_ns=KNOWN_NS, *, anew=False):
    """Return which parts of two hosts are measured, if copies take so long now."""
    testbed = KnownTestbed(TWO_HOSTS, now_ns)
    measured(testbed, anew=anew)
    return testbed.asked


def test_hosts_and_the_ways_between_them_are_measured_once_and_kept_or_anew_if_that_is_asked():
    testbed = KnownTestbed(TWO_HOSTS)
    assert not cost_measurement.has_calibration(TWO_HOSTS)
    assert measured(testbed) == TWO
    assert testbed.asked == [("a",), ("b",), ("a", "b")]
    assert cost_measurement.has_calibration(TWO_HOSTS)
    assert str(cost_measurement.calibration_path(TWO_HOSTS, TWO)).endswith("calibrations/hosts")
    again = KnownTestbed(TWO_HOSTS)
    assert measured(again) == TWO
    assert (again.asked, again.probed) == ([], [1_000_000])
    assert asked(anew=True) == [("a",), ("b",), ("a", "b")]
    testbed = KnownTestbed(THREE_HOSTS)
    assert set(measured(testbed).reference_ns) == {"a:0", "a:1", "b:0", "c:0", "c:1"}
    assert testbed.asked == [("c",), ("a", "c"), ("b", "c")]


@pytest.mark.parametrize(
    ("now_ns", "holds"),
    [
        ((22_000_000, 17_000_000), True),
        ((23_000_000, 25_000_000), False),
        ((15_000_000, 16_000_000), False),
        ((-1, 25_000_000), False),
    ],
)
def test_a_network_that_has_changed_is_measured_anew(now_ns, *, holds):
    asked()
    assert asked(now_ns) == ([] if holds else [("a", "b")])


def test_short_copies_may_wander(monkeypatch):
    monkeypatch.setattr(cost_measurement, "_PROBED_NS", 6_000_000)
    measured(KnownTestbed(TWO_HOSTS))
    testbed = KnownTestbed(TWO_HOSTS, (5_300_000, 4_600_000))
    measured(testbed)
    assert (testbed.asked, testbed.probed) == ([], [1_000])


def test_a_busy_host_is_measured_again_next_time(monkeypatch):
    monkeypatch.setattr("placement_advisor.machine.calibration.UNSTEADY_P90", 1.3)
    busy = replace(ALONE, reference_p90=(1.3,))
    monkeypatch.setitem(FIGURES, "b", busy)
    asked()
    assert cost_measurement.calibration_path(TWO_HOSTS, TWO) is None
    assert asked() == [("b",)]


@pytest.mark.parametrize(
    ("function", "what"), [("calibrate_host", "a"), ("calibrate_route", "a ↔ b")]
)
def test_a_part_that_fails_is_named(function, what):
    failure = CallFailure(cause=FailureCause.CRASHED, message="b:0 was killed", output_tail="")
    testbed = KnownTestbed(TWO_HOSTS, **{function: failure})
    with pytest.raises(TestbedError, match=f"calibration of {what} failed: b:0 was killed"):
        measured(testbed)


def test_a_way_to_which_no_line_fits_is_an_error_and_is_not_kept():
    lost = replace(ROUTE.way, back=tuple(replace(c, copy_ns=-1) for c in ROUTE.way.back))
    testbed = KnownTestbed(TWO_HOSTS, calibrate_route=replace(ROUTE, way=lost))
    with pytest.raises(TestbedError, match="link b → a"):
        measured(testbed)
    assert asked() == [("a", "b")]
