"""Which device is which where hardware gives them other names; where names hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from record_cases import ONE, TWO, cut, layer, record

from placement_advisor.check.lock_record import (
    devices_fingerprint,
    one_to_one,
    renamed_devices,
    with_devices,
)
from placement_advisor.machine.cluster_file import cluster_as_toml, read_cluster
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.presets import read_hardware

CPUS = {ONE: "CPU:0", TWO: "CPU:1"}
DEVICES = [ONE, TWO]


def spread(devices):
    """Return a step with a layer on each of these devices of one digit."""
    return record(
        layers={f"l{i}": layer(str(i), f"GPU:{number}") for i, number in enumerate(devices)},
        cuts=(),
        memory_bytes={f"GPU:{number}": {} for number in sorted(set(devices))},
    )


def test_devices_of_other_names_are_found_by_their_layers():
    assert renamed_devices(with_devices(record(), CPUS), record(), DEVICES) == {
        "CPU:0": ONE,
        "CPU:1": TWO,
    }
    # Whatever their order: the second has what the first had.
    crossed = with_devices(record(), {ONE: "CPU:1", TWO: "CPU:0"})
    assert renamed_devices(crossed, record(), DEVICES) == {"CPU:1": ONE, "CPU:0": TWO}
    today = record(memory_bytes={**record().memory_bytes, "CPU:0": {"input": 8}})
    before = with_devices(record(), CPUS)
    assert renamed_devices(before, today, DEVICES) == {"CPU:0": ONE, "CPU:1": TWO}


def test_a_layer_that_moved_makes_no_device_another_two_or_one():
    before = with_devices(spread("00011"), CPUS)
    assert renamed_devices(before, spread("00111"), DEVICES) == {"CPU:0": ONE, "CPU:1": TWO}
    one = with_devices(spread("00000"), CPUS)
    assert renamed_devices(one, spread("00011"), DEVICES) == {"CPU:0": ONE}
    two = with_devices(spread("00011"), CPUS)
    assert renamed_devices(two, spread("00000"), DEVICES) == {"CPU:0": ONE}


def test_devices_of_the_same_names_are_the_same():
    traded = with_devices(record(), {ONE: TWO, TWO: ONE})
    assert renamed_devices(traded, record(), DEVICES) == {}
    assert renamed_devices(record(), spread("00"), DEVICES) == {}
    before = with_devices(record(), {TWO: "worker"})
    assert renamed_devices(before, record(), DEVICES) == {"worker": TWO}
    # Were the votes to tell, it would be GPU:0, to which its layer moved.
    moved = with_devices(record(), {ONE: TWO, TWO: ONE})
    assert renamed_devices(before, moved, DEVICES) == {}


def test_hosts_keep_what_is_theirs_and_are_found_by_what_they_send():
    on_host = record(
        layers={"table": layer("1", "CPU:0"), "dense": layer("2", ONE)},
        memory_bytes={ONE: {}, TWO: {}, "CPU:0": {}},
    )
    today = replace(on_host, layers={**on_host.layers, "table": layer("1", TWO)})
    assert renamed_devices(on_host, today, DEVICES) == {}
    inputs = record(
        cuts=(cut("x:0", 8, "CPU:0", ONE),), memory_bytes={ONE: {}, TWO: {}, "CPU:0": {}}
    )
    assert renamed_devices(with_devices(inputs, {"CPU:0": "host"}), inputs, DEVICES) == {
        "host": "CPU:0"
    }


_pairs = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))


@given(st.dictionaries(_pairs, st.integers(0, 3)))
def test_no_two_devices_become_one_and_the_most_votes_win(votes):
    found = one_to_one(votes, votes)
    assert len(set(found.values())) == len(found)
    assert set(found.items()) <= votes.keys()
    if votes:
        assert max(votes.values()) == max(votes[pair] for pair in found.items())


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
