from __future__ import annotations

from dataclasses import dataclass, replace

from placement_advisor.check.record import devices_fingerprint
from placement_advisor.machine.devices import Cluster, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterDevice(Device):
    """A device of a version that knows one figure more."""

    figure: int | None = None


def test_a_figure_that_a_later_version_adds_leaves_devices_as_they_were() -> None:
    now = Device(name="GPU:0", kind="GPU", launch_overhead_ns=7)
    later = LaterDevice(name="GPU:0", kind="GPU", launch_overhead_ns=7)
    others = [replace(later, figure=1), replace(now, name="GPU:1"), replace(now, memory_bytes=8)]
    same, *differ = [
        devices_fingerprint(Cluster(devices=(device,), links=())) for device in (now, *others)
    ]
    assert devices_fingerprint(Cluster(devices=(later,), links=())) == same
    assert len({same, *differ}) == 4
