"""Figures of hosts on file: kept by what they depend on, whatever hosts are called."""

import json
from dataclasses import replace

import pytest
from sample_hosts import ALONE, FIRST, OTHER, ROUTE, SIDEWAYS, THREE_HOSTS, TWO_HOSTS, A, B, C

from placement_advisor.machine.calibration import host_fingerprint, route_fingerprint
from placement_advisor.machine.host_figures import (
    keep_host,
    keep_route,
    kept_host,
    kept_route,
)
from placement_advisor.machine.testbed_plan import HostLink, plan_hosts
from placement_advisor.machine.this_machine import core_slots


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


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("op_ns", -1),
        ("reference_ns", [1]),
        ("reference_p90", [1.0]),
        ("within", None),
        ("step_overhead_ns", None),
        ("reach", None),
    ],
)
def test_a_damaged_file_of_a_host_is_as_good_as_none(field, wrong):
    path = keep_host(FIRST, TWO_HOSTS, A)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: wrong}))
    assert kept_host(TWO_HOSTS, A) is None


@pytest.mark.parametrize(("field", "wrong"), [("way", None), ("reach", None)])
def test_a_damaged_file_of_a_route_is_as_good_as_none(field, wrong):
    path = keep_route(ROUTE, TWO_HOSTS, A, B)
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: wrong}))
    assert kept_route(TWO_HOSTS, A, B) is None
