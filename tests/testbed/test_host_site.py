"""What a site of several hosts knows of itself, without any of them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from placement_advisor.machine.testbed_plan import HostLink, HostShare, plan_hosts
from placement_advisor.machine.this_machine import core_slots
from placement_advisor.testbed.remote_launcher import RemoteLauncher, _RelayOfHost

if TYPE_CHECKING:
    from pathlib import Path

A = HostShare(name="a", address="10.0.0.1", slots=core_slots((0, 1)), fingerprint="", is_here=True)
B = HostShare(name="b", address="10.0.0.2", slots=core_slots((0,)), fingerprint="", is_here=False)


@pytest.mark.parametrize(("lends_all", "carriers"), [(True, (7,)), (False, ())])
def test_a_relay_takes_the_core_of_devices_where_there_is_no_other(
    lends_all: bool, carriers: tuple[int, ...], tmp_path: Path
) -> None:
    plan = plan_hosts((A, replace(B, lends_all=lends_all)), HostLink.TLS)
    site = RemoteLauncher(plan, (), tmp_path)
    assert site.carriers(2) == ()  # None runs yet.
    relay = SimpleNamespace(pid=7)
    site._relays[1] = _RelayOfHost(process=relay, folder="", port=1)  # type: ignore[arg-type]
    assert [site.carriers(device) for device in range(3)] == [(), (), carriers]
