"""Which device is which where hardware gives them other names; where names hold."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from record_cases import ONE, TWO, cut, layer, record

from placement_advisor.check.record import one_to_one, renamed_devices, with_devices

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


def test_a_layer_that_moved_does_not_make_its_device_another():
    before = with_devices(spread("00011"), CPUS)
    assert renamed_devices(before, spread("00111"), DEVICES) == {"CPU:0": ONE, "CPU:1": TWO}


def test_one_device_does_not_become_two_nor_two_become_one():
    one = with_devices(spread("00000"), CPUS)
    assert renamed_devices(one, spread("00011"), DEVICES) == {"CPU:0": ONE}
    two = with_devices(spread("00011"), CPUS)
    assert renamed_devices(two, spread("00000"), DEVICES) == {"CPU:0": ONE}


def test_devices_of_the_same_names_are_the_same_even_if_all_they_hold_trades_places():
    traded = with_devices(record(), {ONE: TWO, TWO: ONE})
    assert renamed_devices(traded, record(), DEVICES) == {}
    assert renamed_devices(record(), spread("00"), DEVICES) == {}


def test_of_two_devices_one_of_which_is_renamed_the_other_stays():
    before = with_devices(record(), {TWO: "worker"})
    assert renamed_devices(before, record(), DEVICES) == {"worker": TWO}
    # Were the votes to tell, it would be GPU:0, to which its layer moved.
    moved = with_devices(record(), {ONE: TWO, TWO: ONE})
    assert renamed_devices(before, moved, DEVICES) == {}


def test_a_device_that_is_called_as_a_host_is_today_is_found_by_its_layers():
    today = record(memory_bytes={**record().memory_bytes, "CPU:0": {"input": 8}})
    before = with_devices(record(), CPUS)
    assert renamed_devices(before, today, DEVICES) == {"CPU:0": ONE, "CPU:1": TWO}


def test_what_leaves_the_host_for_a_device_is_no_other_name():
    on_host = record(
        layers={"table": layer("1", "CPU:0"), "dense": layer("2", ONE)},
        memory_bytes={ONE: {}, TWO: {}, "CPU:0": {}},
    )
    today = replace(on_host, layers={**on_host.layers, "table": layer("1", TWO)})
    assert renamed_devices(on_host, today, DEVICES) == {}


def test_a_host_that_holds_no_layer_is_found_by_the_inputs_that_it_sends():
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
