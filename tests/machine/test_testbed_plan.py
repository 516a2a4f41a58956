from __future__ import annotations

from dataclasses import replace

from placement_advisor.machine.testbed_plan import HostLink, HostShare, TestbedKind, plan_hosts

HERE = HostShare(name="localhost", address="10.0.0.1", cores=(0, 1), fingerprint="f", is_here=True)
AWAY = HostShare(name="b", address="10.0.0.2", cores=(3,), fingerprint="g", is_here=False)


def test_devices_of_hosts_are_numbered_on_each() -> None:
    plan = plan_hosts((HERE, AWAY), HostLink.TLS)
    assert plan.kind is TestbedKind.HOSTS
    assert [device.name for device in plan.devices] == ["localhost:0", "localhost:1", "b:0"]
    assert plan.cores == (0, 1, 3)
    assert plan.description == (
        "3 CPU stand-ins on 2 hosts (localhost: 2, b: 1; 1 core each, gRPC, TLS)"
    )
    assert plan.warnings == ()


def test_open_servers_on_hosts_are_said() -> None:
    (warning,) = plan_hosts((HERE, AWAY), HostLink.DIRECT).warnings
    assert "without authentication" in warning
    assert warning.endswith("(--link direct)")


def test_the_way_to_a_first_host_elsewhere_is_said() -> None:
    plan = plan_hosts((AWAY, replace(HERE, is_here=False)), HostLink.TLS, 1_200_000)
    (warning,) = plan.warnings
    assert warning.startswith("every step waits for the way from here to host b and back, 1.20 ms,")
