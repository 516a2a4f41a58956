from __future__ import annotations

from dataclasses import dataclass, replace

from placement_advisor.check.record import devices_fingerprint
from placement_advisor.machine.cluster_file import cluster_as_toml, read_cluster
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.presets import read_hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterDevice(Device):
    """A device of a version that knows one figure more."""

    figure: int | None = None


def test_a_figure_that_a_later_version_adds_leaves_devices_as_they_were():
    now = Device(name="GPU:0", kind="GPU", launch_overhead_ns=7)
    later = LaterDevice(name="GPU:0", kind="GPU", launch_overhead_ns=7)
    others = [replace(later, figure=1), replace(now, kind="CPU"), replace(now, memory_bytes=8)]
    same, *differ = [
        devices_fingerprint(Cluster(devices=(device,), links=())) for device in (now, *others)
    ]
    assert devices_fingerprint(Cluster(devices=(later,), links=())) == same
    assert len({same, *differ}) == 4


def test_devices_of_other_names_are_the_same_devices():
    cluster = read_hardware("2xV100-NVLink")
    text = cluster_as_toml(cluster)
    for old, new in (("GPU:0", "left"), ("GPU:1", "GPU:0"), ("CPU:0", "board")):
        text = text.replace(f'= "{old}"', f'= "{new}"')
    renamed = read_cluster(text.encode(), "renamed.toml")
    assert renamed.place_names() == ("left", "GPU:0", "board")
    assert devices_fingerprint(renamed) == devices_fingerprint(cluster)
    slower = replace(renamed, links=(replace(renamed.links[0], latency_ns=1), *renamed.links[1:]))
    assert devices_fingerprint(slower) != devices_fingerprint(cluster)
