"""Figures of hosts: put together to a testbed, and kept on file by what they depend on."""

import json
from dataclasses import replace
from itertools import permutations

import pytest
from sample_hosts import (
    ALONE,
    DRIVEN,
    FIRST,
    OTHER,
    REACHED,
    ROUTE,
    SIDEWAYS,
    THREE_HOSTS,
    TWO_HOSTS,
    WAY,
    WITHIN,
    A,
    B,
    C,
)

from placement_advisor.machine.calibration import host_fingerprint, route_fingerprint
from placement_advisor.machine.host_figures import (
    keep_host,
    keep_route,
    kept_host,
    kept_route,
    over_hosts,
)
from placement_advisor.machine.testbed_plan import HostLink, plan_hosts
from placement_advisor.machine.this_machine import core_slots

TWO = over_hosts(TWO_HOSTS.hosts, {"a": FIRST, "b": ALONE}, {("a", "b"): ROUTE})
THREE = over_hosts(
    THREE_HOSTS.hosts,
    {"a": FIRST, "b": ALONE, "c": OTHER},
    {("a", "b"): ROUTE, ("a", "c"): ROUTE, ("b", "c"): SIDEWAYS},
)


def test_devices_of_two_hosts_are_linked_as_their_first_ones_which_the_first_host_drives():
    assert TWO.links == {
        ("a:0", "a:1"): WITHIN.there,
        ("a:1", "a:0"): WITHIN.back,
        ("a:0", "b:0"): WAY.there,
        ("a:1", "b:0"): WAY.there,
        ("b:0", "a:0"): WAY.back,
        ("b:0", "a:1"): WAY.back,
    }
    assert TWO.both_ways == {("a:0", "a:1"): WITHIN.both_ways, ("a:0", "b:0"): WAY.both_ways}
    assert TWO.reference_ns == {"a:0": 250_000, "a:1": 260_000, "b:0": 300_000}
    assert TWO.reference_p90 == {"a:0": 1.02, "a:1": 1.05, "b:0": 1.0}

    assert (TWO.step_overhead_ns, TWO.op_ns) == (350_000, 1_100)
    assert TWO.partition_overhead_ns == DRIVEN.partition_overhead_ns
    assert (TWO.remote_ns, TWO.quantum_ns) == (DRIVEN.remote_ns, DRIVEN.quantum_ns)
    assert TWO.network.remote_ns == {"b": REACHED.remote_ns}


def test_a_first_host_of_one_device_drives_that_of_another_host():
    b, a = TWO_HOSTS.hosts[::-1]
    first = replace(ALONE, step_overhead_ns=360_000)
    found = over_hosts((b, a), {"b": first, "a": OTHER}, {("b", "a"): ROUTE})
    assert found.remote_ns == 0  # It has no device that would take it.
    assert found.partition_overhead_ns == REACHED.partition_overhead_ns
    assert found.quantum_ns == REACHED.quantum_ns


def test_all_devices_of_three_hosts_are_linked_some_by_links_that_stand_for_others():
    names = [device.name for device in THREE_HOSTS.devices]
    assert set(THREE.links) == set(permutations(names, 2))
    assert list(THREE.reference_ns) == names
    assert set(THREE.network.at_once) == {("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")}

    within = [("a:0", "a:1"), ("a:1", "a:0"), ("c:0", "c:1"), ("c:1", "c:0")]
    assert list(THREE.network.measured()) == [*within, *permutations(("a:0", "b:0", "c:0"), 2)]


def test_a_slower_host_makes_its_own_copies_longer_and_of_others_what_its_cores_do():
    slow = TWO.at_speed({"a:0": 250_000, "a:1": 260_000, "b:0": 600_000})
    for ends in (("a:0", "a:1"), ("a:1", "a:0")):
        assert slow.links[ends] == TWO.links[ends]
    for before, after in zip(TWO.links["a:0", "b:0"], slow.links["a:0", "b:0"], strict=True):
        assert after.receive_ns == 2 * before.receive_ns
        assert after.send_ns == before.send_ns
        assert after.copy_ns == before.copy_ns + before.receive_ns
    assert slow.network == TWO.network
    assert slow.step_overhead_ns == TWO.step_overhead_ns

    busy = TWO.at_speed({"a:0": 500_000, "a:1": 520_000, "b:0": 300_000})
    assert busy.step_overhead_ns == 2 * TWO.step_overhead_ns
    assert busy.links["a:0", "a:1"][0].copy_ns == 2 * TWO.links["a:0", "a:1"][0].copy_ns


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache directory of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_is_kept_is_found_and_a_further_host_leaves_it():
    assert kept_host(TWO_HOSTS, A) is None
    assert kept_route(TWO_HOSTS, A, B) is None
    keep_host(FIRST, TWO_HOSTS, A)
    keep_host(ALONE, TWO_HOSTS, B)
    path = keep_route(ROUTE, TWO_HOSTS, A, B)
    assert len(list(path.parent.iterdir())) == 3
    for plan in (TWO_HOSTS, THREE_HOSTS):
        assert (kept_host(plan, A), kept_host(plan, B)) == (FIRST, ALONE)
        assert kept_route(plan, A, B) == ROUTE
    assert kept_host(THREE_HOSTS, C) is None
    assert kept_route(THREE_HOSTS, A, C) is None


def test_hosts_are_known_by_whatever_name_but_not_with_another_number_of_devices():
    keep_host(FIRST, TWO_HOSTS, A)
    keep_route(ROUTE, TWO_HOSTS, A, B)
    renamed = replace(A, name="x"), replace(B, name="y")
    plan = plan_hosts(renamed, HostLink.TLS)
    assert kept_host(plan, renamed[0]) == FIRST
    assert kept_route(plan, *renamed) == ROUTE

    keep_host(ALONE, TWO_HOSTS, B)
    two = replace(B, slots=core_slots((0, 1)))
    assert kept_host(plan_hosts((A, two), HostLink.TLS), two) is None


def test_figures_of_a_host_that_drives_are_none_of_one_that_does_not():
    keep_host(FIRST, TWO_HOSTS, A)
    keep_route(ROUTE, TWO_HOSTS, A, B)
    plan = plan_hosts((C, A, B), HostLink.TLS)
    assert kept_host(plan, A) is None
    assert kept_route(plan, A, B) is None
    keep_host(OTHER, plan, A)
    keep_route(SIDEWAYS, plan, A, B)
    assert kept_host(plan, A) == OTHER
    assert kept_route(plan, A, B) == SIDEWAYS
    assert kept_host(TWO_HOSTS, A) == FIRST


@pytest.mark.parametrize(
    "other",
    [
        plan_hosts((A, replace(B, address="10.0.0.9")), HostLink.TLS),
        plan_hosts((A, replace(B, fingerprint="another processor")), HostLink.TLS),
        plan_hosts((A, B), HostLink.DIRECT),
    ],
)
def test_what_figures_depend_on_tells_them_apart(other):
    _, b = other.hosts
    assert host_fingerprint(other, b) != host_fingerprint(TWO_HOSTS, B)
    assert route_fingerprint(other, A, b) != route_fingerprint(TWO_HOSTS, A, B)


def damage(path, field, wrong):
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: wrong}))


def test_a_damaged_file_is_as_good_as_none():
    numbers = {"op_ns": -1, "reference_ns": [1], "reference_p90": [1.0]}
    missing = dict.fromkeys(("within", "step_overhead_ns", "reach"))
    for field, wrong in (numbers | missing).items():
        damage(keep_host(FIRST, TWO_HOSTS, A), field, wrong)
        assert kept_host(TWO_HOSTS, A) is None, field
    for field in ("way", "reach"):
        damage(keep_route(ROUTE, TWO_HOSTS, A, B), field, None)
        assert kept_route(TWO_HOSTS, A, B) is None, field
