"""What differs between two records, with layers, tensors and devices found again by other names."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_cases import ALIKE, ONE, TWO, cut, layer, record, records

from placement_advisor.check.lock_record import Growth, LayerRecord, Move, Part, difference

# A minute is far too long for a check; a quiet machine takes a tenth of it.
LARGE_WITHIN_S = 60.0


def layers(**made_of):
    """Return layers from what they are made of and where they are."""
    return {name: layer(*each) for name, each in made_of.items()}


def of_layers(found):
    return record(layers=found, cuts=())


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


def laid_out(text):
    """Return a step from layers, each written as its name, what it is made of and its device."""
    split = (each.split(":") for each in text.split())
    return of_layers({name: layer(made_of, f"GPU:{device}") for name, made_of, device in split})


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
    before = record()
    after = record(
        layers=layers(lower=("11", TWO), upper=("22", ONE)),
        cuts=(cut("lower/Relu:0", 1_000_000, TWO, ONE),),
        memory_bytes={ONE: before.memory_bytes[TWO], TWO: before.memory_bytes[ONE]},
    )
    found = difference(before, after, ALIKE)
    assert (found.moves, found.cuts_added, found.cuts_removed) == ((), (), ())
    assert found.before.memory_bytes == after.memory_bytes
    three = [[ONE, TWO, "GPU:2"]]
    held = {device: {"variables": i} for i, device in enumerate(three[0])}
    before = record(layers=layers(a=("1", ONE)), cuts=(), memory_bytes=held)
    after = replace(before, layers=layers(a=("1", "GPU:2")))
    assert difference(before, after, three).before.memory_bytes == {
        "GPU:2": held[ONE],
        TWO: held[TWO],
        ONE: held["GPU:2"],
    }
    after = record(layers=layers(lower=("11", TWO), upper=("22", ONE)))
    assert {move.layer for move in difference(record(), after, [[ONE], [TWO]]).moves} == {
        "lower",
        "upper",
    }


def test_layers_that_take_longer_begin_with_the_one_that_grew_most():
    before = of_layers({"a": layer("1", ONE), "b": layer("2", ONE), "c": layer("3", ONE)})
    after = of_layers(
        {
            "a": layer("1", ONE, busy_us=90),
            "b": layer("2", ONE, busy_us=130),
            "c": layer("3", ONE),
            "d": layer("4", ONE, busy_us=40),
        }
    )
    assert difference(before, after, ALIKE).growths == (
        Growth(layer="d", before_ns=0, after_ns=40_000),
        Growth(layer="b", before_ns=100_000, after_ns=130_000),
        Growth(layer="a", before_ns=100_000, after_ns=90_000),
    )


def test_tensors_that_cross_anew_and_no_more_are_listed():
    before = record(cuts=(cut("a", 5), cut("b", 7)))
    after = record(cuts=(cut("a", 5), cut("c", 9)))
    found = difference(before, after, ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((cut("c", 9),), (cut("b", 7),))
    found = difference(record(cuts=(cut("a", 5),)), record(cuts=(cut("a", 5), cut("a", 5))), ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((cut("a", 5),), ())
    found = difference(record(cuts=(cut("a", 5),)), record(cuts=(cut("b", 5),)), ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((), ())
    back = difference(record(cuts=(cut("a", 5),)), record(cuts=(cut("a", 5, TWO, ONE),)), [])
    assert (back.cuts_added, back.cuts_removed) == ((cut("a", 5, TWO, ONE),), (cut("a", 5),))


def test_an_op_on_the_host_is_told_once_by_whatever_name():
    found = difference(record(), record(on_host={"lower": ("AsString",)}), ALIKE)
    assert found.on_host_added == (("lower", "AsString"),)
    again = record(on_host={"lower": ("AsString",)})
    assert difference(again, again, ALIKE).on_host_added == ()
    before = replace(of_layers(layers(a=("1", ONE))), on_host={"a": ("AsString",)})
    renamed = replace(of_layers(layers(x=("1", ONE))), on_host={"x": ("AsString",)})
    assert difference(before, renamed, ALIKE).on_host_added == ()
    more = replace(
        of_layers(layers(x=("1", ONE), y=("2", ONE))),
        on_host={"x": ("AsString",), "y": ("AsString",)},
    )
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


@given(records, records, st.randoms(use_true_random=False))
def test_any_two_records_can_be_compared_in_any_order_of_layers(before, after, order):
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
