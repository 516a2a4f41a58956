"""What differs between two records, with layers, tensors and devices found by other names."""

import time
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import ALIKE, ONE, TWO, cut, layer, record, records

from placement_advisor.check.lock_record import (
    Growth,
    LayerRecord,
    Move,
    Part,
    devices_fingerprint,
    difference,
    one_to_one,
    renamed_devices,
    with_devices,
)
from placement_advisor.machine.cluster_file import cluster_as_toml, read_cluster
from placement_advisor.machine.devices import Cluster, Device
from placement_advisor.machine.presets import read_hardware

# A minute is far too long for a check; a quiet machine takes a tenth of it.
LARGE_WITHIN_S = 60.0


def of_layers(found):
    return record(layers=found, cuts=())


def laid_out(text):
    """Return a step from layers, each written as its name, what it is made of and its device."""
    split = (each.split(":") for each in text.split())
    return of_layers({name: layer(made_of, f"GPU:{device}") for name, made_of, device in split})


def test_a_layer_or_a_part_of_it_on_another_device_has_moved_and_a_few_ops_have_not():
    after = record(layers={**record().layers, "upper": layer("22", ONE)})
    after = replace(after, layers={**after.layers, "top": layer("33", TWO)})
    before = record(layers={**record().layers, "top": layer("33", TWO)})
    assert difference(before, after, ALIKE).moves == (
        Move(layer="upper", part=Part.FORWARD, before=(TWO,), after=(ONE,)),
        Move(layer="upper", part=Part.BACKWARD, before=(TWO,), after=(ONE,)),
    )
    after = record(layers={**record().layers, "upper": layer("22", TWO, backward=ONE)})
    (move,) = difference(record(), after, ALIKE).moves
    assert (move.layer, move.part) == ("upper", Part.BACKWARD)
    both = LayerRecord(forward=(TWO, ONE), fingerprint="22", busy_us=100)
    before = of_layers({"upper": replace(both, forward=(TWO,))})
    assert difference(before, of_layers({"upper": both}), []).moves == ()


@pytest.mark.parametrize(
    ("before", "after", "renamed", "gone", "new", "moved"),
    [
        # Layers that changed and got a number are the same layers.
        (
            "conv_1:11:0 conv_2:22:1",
            "conv_1_1:12:0 conv_2_1:23:0 conv_2_2:33:0",
            "conv_1:conv_1_1 conv_2:conv_2_1",
            "",
            "conv_2_2",
            "conv_2_1",
        ),
        # Of another name and the same ops; of the same name and other ops; of others both.
        ("a:1:0 b:2:1", "x:1:0 b:2:1", "a:x", "", "", ""),
        ("a:1:0 b:2:1", "a:9:0 b:2:1", "", "", "", ""),
        ("a:1:0 b:2:1", "b:2:1 c:3:0", "", "a", "c", ""),
        # Twins that trade devices; of two that are alike the one that moved.
        ("a:1:0 b:1:1 c:2:1", "a:1:1 b:1:0 c:3:1", "", "", "", ""),
        ("a:1:0 b:1:1 c:2:0", "a:1:1 b:1:0 c:2:0", "", "", "", ""),
        ("a:1:0 b:1:1 c:2:0 d:3:1", "a:1:0 b:1:0 c:2:0 d:3:1", "", "", "", "b"),
        # Pools behind convolutions of twice the filters: each makes what the next one did.
        ("p0:8:0 p1:4:0 p2:2:1", "p0:16:0 p1:8:0 p2:4:1", "", "", "", ""),
        ("p0:8:0 p1:4:0 p2:2:1", "p0:16:0 p1:8:0 p2:4:1 p3:2:1", "", "", "p3", ""),
        # Numbers that Keras counted shift with a layer put in before.
        (
            "dense:a:0 dense_1:b:0 dense_2:c:1",
            "dense:x:0 dense_1:a:0 dense_2:b:0 dense_3:c:1",
            "dense:dense_1 dense_1:dense_2 dense_2:dense_3",
            "",
            "dense",
            "",
        ),
    ],
)
def test_layers_are_found_again_by_name_and_by_what_they_are_made_of(
    before, after, renamed, gone, new, moved
):
    found = difference(laid_out(before), laid_out(after), [])
    assert found.renamed == dict(each.split(":") for each in renamed.split())
    assert (found.gone, found.new) == (tuple(gone.split()), tuple(new.split()))
    assert {move.layer for move in found.moves} == set(moved.split())


def test_devices_that_are_alike_trade_places_only_where_they_need_to():
    before, swapped = record(), laid_out("lower:11:1 upper:22:0").layers
    after = record(
        layers=swapped,
        cuts=(cut("lower/Relu:0", 1_000_000, TWO, ONE),),
        memory_bytes={ONE: before.memory_bytes[TWO], TWO: before.memory_bytes[ONE]},
    )
    found = difference(before, after, ALIKE)
    assert (found.moves, found.cuts_added, found.cuts_removed) == ((), (), ())
    assert found.before.memory_bytes == after.memory_bytes
    three = [[ONE, TWO, "GPU:2"]]
    held = {device: {"variables": i} for i, device in enumerate(three[0])}
    before = replace(laid_out("a:1:0"), memory_bytes=held)
    after = replace(before, layers=laid_out("a:1:2").layers)
    traded = {**held, "GPU:2": held[ONE], ONE: held["GPU:2"]}
    assert difference(before, after, three).before.memory_bytes == traded
    moves = difference(record(), record(layers=swapped), [[ONE], [TWO]]).moves
    assert {move.layer for move in moves} == {"lower", "upper"}


def test_layers_that_take_longer_begin_with_the_one_that_grew_most():
    busy_us = {"a": 90, "b": 130, "c": 100, "d": 40}
    after = of_layers({name: layer(name, ONE, busy_us=taken) for name, taken in busy_us.items()})
    assert difference(laid_out("a:a:0 b:b:0 c:c:0"), after, ALIKE).growths == (
        Growth(layer="d", before_ns=0, after_ns=40_000),
        Growth(layer="b", before_ns=100_000, after_ns=130_000),
        Growth(layer="a", before_ns=100_000, after_ns=90_000),
    )


def test_tensors_that_cross_anew_and_no_more_are_listed():
    before = record(cuts=(cut("a", 5), cut("b", 7)))
    after = record(cuts=(cut("a", 5), cut("c", 9)))
    found = difference(before, after, ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((cut("c", 9),), (cut("b", 7),))
    once = record(cuts=(cut("a", 5),))
    found = difference(once, record(cuts=(cut("a", 5), cut("a", 5))), ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((cut("a", 5),), ())
    found = difference(once, record(cuts=(cut("b", 5),)), ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((), ())
    back = difference(once, record(cuts=(cut("a", 5, TWO, ONE),)), [])
    assert (back.cuts_added, back.cuts_removed) == ((cut("a", 5, TWO, ONE),), (cut("a", 5),))


def test_an_op_on_the_host_is_told_once_by_whatever_name():
    found = difference(record(), record(on_host={"lower": ("AsString",)}), ALIKE)
    assert found.on_host_added == (("lower", "AsString"),)
    before = replace(laid_out("a:1:0"), on_host={"a": ("AsString",)})
    renamed = replace(laid_out("x:1:0"), on_host={"x": ("AsString",)})
    assert difference(before, renamed, ALIKE).on_host_added == ()
    more = replace(laid_out("x:1:0 y:2:0"), on_host=dict.fromkeys("xy", ("AsString",)))
    assert difference(before, more, ALIKE).on_host_added == (("y", "AsString"),)


@given(records)
def test_no_record_differs_from_itself(found):
    devices = sorted(
        {device for each in found.layers.values() for d in each.devices.values() for device in d}
    )
    same = difference(found, found, [devices])
    assert not any((same.renamed, same.gone, same.new, same.moves, same.growths))
    assert not any((same.cuts_added, same.cuts_removed, same.on_host_added))
    assert same.before == found


@given(records, records)
def test_any_two_records_can_be_compared(before, after):
    found = difference(before, after, [])
    matched = len(before.layers) - len(found.gone)
    assert matched == len(after.layers) - len(found.new)
    assert set(found.gone) <= before.layers.keys()
    assert set(found.new) <= after.layers.keys()
    swapped = difference(after, before, [])
    assert (swapped.cuts_added, swapped.cuts_removed) == (found.cuts_removed, found.cuts_added)


def test_ten_thousand_layers_take_seconds():
    before, after = (
        of_layers({f"{name}{i}": layer(str(i % 5_000), ONE) for i in range(10_000)})
        for name in "ab"
    )
    began = time.process_time()
    found = difference(before, after, ALIKE)
    assert time.process_time() - began < LARGE_WITHIN_S
    assert len(found.renamed) == 10_000


CPUS = {ONE: "CPU:0", TWO: "CPU:1"}
TODAY = {"CPU:0": ONE, "CPU:1": TWO}
DEVICES = [ONE, TWO]


def spread(devices):
    """Return a step with a layer on each of these devices of one digit."""
    return record(
        layers={f"l{i}": layer(str(i), f"GPU:{number}") for i, number in enumerate(devices)},
        cuts=(),
        memory_bytes={f"GPU:{number}": {} for number in sorted(set(devices))},
    )


TRADED = with_devices(record(), {ONE: TWO, TWO: ONE})
OF_A_WORKER = with_devices(record(), {TWO: "worker"})
ON_HOST = record(
    layers={"table": layer("1", "CPU:0"), "dense": layer("2", ONE)},
    memory_bytes={ONE: {}, TWO: {}, "CPU:0": {}},
)
FROM_HOST = record(cuts=(cut("x:0", 8, "CPU:0", ONE),), memory_bytes=ON_HOST.memory_bytes)
HOST_HOLDS = record(memory_bytes={**record().memory_bytes, "CPU:0": {"input": 8}})


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (with_devices(record(), CPUS), record(), TODAY),
        (with_devices(record(), CPUS), HOST_HOLDS, TODAY),
        # Whatever their order: the second has what the first had.
        (with_devices(TRADED, CPUS), record(), {"CPU:1": ONE, "CPU:0": TWO}),
        # A layer that moved makes no device another, two or one.
        (with_devices(spread("00011"), CPUS), spread("00111"), TODAY),
        (with_devices(spread("00000"), CPUS), spread("00011"), {"CPU:0": ONE}),
        (with_devices(spread("00011"), CPUS), spread("00000"), {"CPU:0": ONE}),
        # Devices of the same names are the same. Were the votes to tell, the worker would be GPU:0,
        # to which its layer moved.
        (TRADED, record(), {}),
        (record(), spread("00"), {}),
        (OF_A_WORKER, record(), {"worker": TWO}),
        (OF_A_WORKER, TRADED, {}),
        # Hosts keep what is theirs, and are found by what they send.
        (ON_HOST, replace(ON_HOST, layers={**ON_HOST.layers, "table": layer("1", TWO)}), {}),
        (with_devices(FROM_HOST, {"CPU:0": "host"}), FROM_HOST, {"host": "CPU:0"}),
    ],
)
def test_devices_of_other_names_are_found_by_their_layers_and_copies(before, after, names):
    assert renamed_devices(before, after, DEVICES) == names


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
