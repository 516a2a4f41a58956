"""What is said of hosts that were examined."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from examined_hosts import two_hosts

from placement_advisor.analysis.host_doctor import RouteResult, all_checks, next_step
from placement_advisor.errors import TestbedError
from placement_advisor.files.contract import plain
from placement_advisor.machine.clock_range import ClockRange
from placement_advisor.machine.nvidia import Gpu, Gpus
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.remote_hosts.host_facts import WayTried
from placement_advisor.report.doctor_text import render_hosts
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.doctor import Hosts

if TYPE_CHECKING:
    from placement_advisor.analysis.host_doctor import HostsExamined
    from placement_advisor.machine.machine_checks import Check

DAY_NS = 24 * 60 * 60 * 10**9


def wrong(found: HostsExamined) -> dict[str, Check]:
    """Return what is not well, by its name; text and JSON of it keep what they promise."""
    content = json.loads(json.dumps(plain(Hosts.of(found)), allow_nan=False))
    jsonschema.Draft202012Validator(load_schema("hosts")).validate(content)
    checks = all_checks(found)
    assert content["can_analyze"] is not any(check.blocks for check in checks)
    assert max(map(len, render_hosts(found).splitlines())) <= 100
    return {check.name: check for check in checks if check.state != "ok"}


def change(found: HostsExamined, host: int, part: str, **changes: Any) -> None:
    """Have a host tell otherwise of its facts or its place."""
    each = found.hosts[host]
    setattr(each, part, replace(getattr(each, part), **changes))


def test_hosts_in_order_can_run_an_analysis() -> None:
    found = two_hosts()
    assert wrong(found) == {}
    text = render_hosts(found)
    assert "clock         200 µs ahead of this machine's, ± 50.0 µs" in text
    assert "a → b         a small message and its answer take 300 µs" in text
    assert text.endswith("next: advisor analyze MODEL.py, with these hosts\n")


def test_a_host_that_does_not_answer_says_why_and_nothing_else() -> None:
    found = two_hosts()
    found.hosts[1].answered_ns = None
    found.hosts[1].versions = found.hosts[1].facts = None
    found.hosts[1].problem = TestbedError("host b: no", hint="see whether `ssh b` works")
    found.ways = ()
    assert set(wrong(found)) == {"reached"}
    assert next_step(found) == "see whether `ssh b` works"
    text = render_hosts(found)
    assert "`advisor analyze` cannot work on these hosts" in text


@pytest.mark.parametrize("told", ["no worker", {"tensorflow": 5}, {}])
def test_a_host_of_another_version_may_say_anything(told: object) -> None:
    found = two_hosts()
    found.hosts[1].versions = told
    found.hosts[1].facts = found.hosts[1].place = None
    assert set(wrong(found)) == {"versions"}


def test_another_python_is_worth_a_note_alone() -> None:
    found = two_hosts()
    change(found, 1, "facts", python_version="3.10.1")
    versions = wrong(found)["versions"]
    assert "Python 3.10.1, here " in versions.finding
    assert not versions.blocks


def test_fewer_cores_than_devices_are_too_few() -> None:
    found = two_hosts()
    change(found, 0, "facts", cores=(0,))
    devices = wrong(found)["devices"]
    assert devices.finding == "1 core for 2 devices, one each"
    assert devices.blocks


def with_gpus(found: HostsExamined, *visible: int) -> dict[str, Check]:
    """Return what is not well where hosts have so many GPUs that TensorFlow may see."""
    for host, count in enumerate(visible):
        cards = (Gpu(index=i, name="Tesla T4", memory_bytes=16 << 30) for i in range(count))
        change(found, host, "facts", visible_gpus=count, gpus=Gpus(devices=tuple(cards)))
    return wrong(found)


def test_gpus_of_hosts_are_named_and_said_to_be_untried() -> None:
    found = two_hosts()
    (devices,) = with_gpus(found, 2, 4).values()
    assert devices.finding.startswith("4 GPUs (Tesla T4) for 2 devices, one each: untried")
    assert not devices.blocks
    assert next_step(found) == "advisor analyze MODEL.py, with these hosts"


def test_gpus_on_some_hosts_alone_are_no_devices_of_one_analysis() -> None:
    found = two_hosts()
    devices = with_gpus(found, 2, 0)["devices"]
    assert devices.blocks
    assert "a has 2 for 2, b has none for 2" in devices.finding
    assert next_step(found) == devices.action


def test_a_host_that_others_use_is_told() -> None:
    found = two_hosts()
    found.hosts[0].facts = found.hosts[0].place = None
    found.hosts[0].problem = TestbedError("host a: in use by erika on c (process 7)")
    assert wrong(found)["use"].finding == "host a: in use by erika on c (process 7)"


def test_clocks_a_day_apart_break_certificates_and_nothing_else() -> None:
    found = two_hosts()
    found.hosts[1].clock = ClockRange(low_ns=-2 * DAY_NS, high_ns=-2 * DAY_NS + 100_000)
    clock = wrong(found)["clock"]
    assert clock.blocks
    assert "behind this machine's" in clock.finding
    found.link = HostLink.DIRECT
    assert wrong(found) == {}


def test_a_clock_that_was_set_is_a_note() -> None:
    found = two_hosts()
    found.hosts[1].clock = None
    assert not wrong(found)["clock"].blocks


@pytest.mark.parametrize(("link", "blocks"), [(HostLink.TLS, True), (HostLink.DIRECT, False)])
def test_only_relays_need_a_private_network(link: HostLink, blocks: bool) -> None:
    found = two_hosts()
    found.link = link
    change(found, 1, "place", has_private_network=False)
    assert wrong(found)["network"].blocks is blocks


@pytest.mark.parametrize(("port", "blocks"), [(None, True), (7_600, False)])
def test_an_address_elsewhere_can_lead_to_a_service_that_waits(
    port: int | None, blocks: bool
) -> None:
    found = two_hosts()
    each = found.hosts[1]
    each.request = replace(each.request, address=each.address, port=port)
    change(found, 1, "place", interface=None, mtu_bytes=None)
    assert wrong(found)["address"].blocks is blocks


def test_frames_that_differ_are_a_note() -> None:
    found = two_hosts()
    change(found, 1, "place", mtu_bytes=9_000)
    mtu = wrong(found)["MTU"]
    assert mtu.finding.startswith("1,500 bytes on a, 9,000 bytes on b")
    assert not mtu.blocks


@pytest.mark.parametrize(
    ("tried", "finding"),
    [
        (WayTried(small_ns=None, large_passes=False), "b is not reached at 10.0.0.2"),
        (WayTried(small_ns=300_000, large_passes=False), "but large ones do not arrive"),
    ],
)
def test_a_way_that_does_not_carry_names_both_ends(tried: WayTried, finding: str) -> None:
    found = two_hosts()
    found.ways = (RouteResult(source="a", target="b", tried=tried),)
    way = wrong(found)["a → b"]
    assert finding in way.finding
    assert way.blocks


def test_ways_that_could_not_be_tried_say_why() -> None:
    found = two_hosts()
    found.ways, found.problem = (), TestbedError("relay-b was killed")
    assert wrong(found)["ways"].finding == "relay-b was killed"
