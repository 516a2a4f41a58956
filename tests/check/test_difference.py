"""What differs between two records, with layers, tensors and devices found again by other names."""

import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from record_cases import ALIKE, ONE, TWO, cut, layer, record, records

from placement_advisor.check.record import Growth, LayerRecord, Move, Part, difference

# A minute is far too long for a check; a quiet machine takes a tenth of it.
LARGE_WITHIN_S = 60.0


def layers(**made_of):
    """Return layers from what they are made of and where they are."""
    return {name: layer(*each) for name, each in made_of.items()}


def of_layers(found):
    return record(layers=found, cuts=())


def test_equal_records_do_not_differ():
    found = difference(record(), record(), ALIKE)
    assert found.before == found.after == record()
    assert not any(
        (found.renamed, found.gone, found.new, found.moves, found.growths, found.cuts_added,
         found.cuts_removed, found.on_host_added)
    )  # fmt: skip


def test_a_layer_on_another_device_has_moved():
    after = record(layers={**record().layers, "upper": layer("22", ONE)})
    after = replace(after, layers={**after.layers, "top": layer("33", TWO)})
    before = record(layers={**record().layers, "top": layer("33", TWO)})
    assert difference(before, after, ALIKE).moves == (
        Move(layer="upper", part=Part.FORWARD, before=(TWO,), after=(ONE,)),
        Move(layer="upper", part=Part.BACKWARD, before=(TWO,), after=(ONE,)),
    )


def test_a_part_of_a_layer_can_move_alone():
    after = record(layers={**record().layers, "upper": layer("22", TWO, backward=ONE)})
    (move,) = difference(record(), after, ALIKE).moves
    assert (move.layer, move.part) == ("upper", Part.BACKWARD)


def test_a_few_ops_elsewhere_are_no_move():
    both = LayerRecord(forward=(TWO, ONE), fingerprint="22", busy_us=100)
    before = of_layers({"upper": replace(both, forward=(TWO,))})
    assert difference(before, of_layers({"upper": both}), []).moves == ()


def test_a_layer_that_changed_and_got_a_number_is_the_same_layer():
    before = of_layers(layers(conv_1=("11", ONE), conv_2=("22", TWO)))
    after = of_layers(layers(conv_1_1=("12", ONE), conv_2_1=("23", ONE), conv_2_2=("33", ONE)))
    found = difference(before, after, [])
    assert found.renamed == {"conv_1": "conv_1_1", "conv_2": "conv_2_1"}
    assert (found.gone, found.new) == ((), ("conv_2_2",))
    assert {move.layer for move in found.moves} == {"conv_2_1"}


def test_a_layer_of_another_name_and_the_same_ops_is_renamed():
    found = difference(
        of_layers(layers(a=("1", ONE), b=("2", TWO))),
        of_layers(layers(x=("1", ONE), b=("2", TWO))),
        ALIKE,
    )
    assert found.renamed == {"a": "x"}
    assert (found.gone, found.new, found.moves) == ((), (), ())


def test_a_layer_of_the_same_name_and_other_ops_is_the_same():
    found = difference(
        of_layers(layers(a=("1", ONE), b=("2", TWO))),
        of_layers(layers(a=("9", ONE), b=("2", TWO))),
        ALIKE,
    )
    assert (found.renamed, found.gone, found.new) == ({}, (), ())


def test_twins_that_trade_devices_keep_their_names():
    found = difference(
        of_layers(layers(a=("1", ONE), b=("1", TWO), c=("2", TWO))),
        of_layers(layers(a=("1", TWO), b=("1", ONE), c=("3", TWO))),
        ALIKE,
    )
    assert (found.renamed, found.gone, found.new, found.moves) == ({}, (), (), ())


def test_layers_of_another_name_and_other_ops_are_gone_and_new():
    found = difference(
        of_layers(layers(a=("1", ONE), b=("2", TWO))),
        of_layers(layers(b=("2", TWO), c=("3", ONE))),
        ALIKE,
    )
    assert (found.renamed, found.gone, found.new) == ({}, ("a",), ("c",))


def test_layers_keep_their_names_where_others_are_made_of_what_they_were():
    """As pools behind convolutions of twice the filters: each makes what the next one did."""
    before = of_layers(layers(pool0=("8", ONE), pool1=("4", ONE), pool2=("2", TWO)))
    after = of_layers(layers(pool0=("16", ONE), pool1=("8", ONE), pool2=("4", TWO)))
    found = difference(before, after, ALIKE)
    assert (found.renamed, found.gone, found.new, found.moves) == ({}, (), (), ())
    longer = of_layers({**after.layers, "pool3": layer("2", TWO)})
    found = difference(before, longer, ALIKE)
    assert (found.renamed, found.new, found.moves) == ({}, ("pool3",), ())


def test_numbers_that_keras_counted_shift_with_a_layer_put_in_before():
    before = of_layers(layers(dense=("a", ONE), dense_1=("b", ONE), dense_2=("c", TWO)))
    after = of_layers(
        layers(dense=("x", ONE), dense_1=("a", ONE), dense_2=("b", ONE), dense_3=("c", TWO))
    )
    found = difference(before, after, ALIKE)
    assert found.renamed == {"dense": "dense_1", "dense_1": "dense_2", "dense_2": "dense_3"}
    assert (found.new, found.gone, found.moves) == (("dense",), (), ())


def test_layers_that_are_alike_and_trade_places_are_no_move():
    before = of_layers(layers(a=("1", ONE), b=("1", TWO), c=("2", ONE)))
    after = of_layers(layers(a=("1", TWO), b=("1", ONE), c=("2", ONE)))
    assert difference(before, after, ALIKE).moves == ()


def test_of_two_that_are_alike_the_one_that_moved_is_named():
    before = of_layers(layers(a=("1", ONE), b=("1", TWO), c=("2", ONE), d=("3", TWO)))
    after = of_layers(layers(a=("1", ONE), b=("1", ONE), c=("2", ONE), d=("3", TWO)))
    assert {move.layer for move in difference(before, after, ALIKE).moves} == {"b"}


def test_devices_that_are_alike_may_trade_places_as_a_whole():
    before = record()
    after = record(
        layers=layers(lower=("11", TWO), upper=("22", ONE)),
        cuts=(cut("lower/Relu:0", 1_000_000, TWO, ONE),),
        memory_bytes={ONE: before.memory_bytes[TWO], TWO: before.memory_bytes[ONE]},
    )
    found = difference(before, after, ALIKE)
    assert (found.moves, found.cuts_added, found.cuts_removed) == ((), (), ())
    assert found.before.memory_bytes == after.memory_bytes


def test_devices_that_need_not_trade_places_stay():
    three = [[ONE, TWO, "GPU:2"]]
    held = {device: {"variables": i} for i, device in enumerate(three[0])}
    before = record(layers=layers(a=("1", ONE)), cuts=(), memory_bytes=held)
    after = replace(before, layers=layers(a=("1", "GPU:2")))
    assert difference(before, after, three).before.memory_bytes == {
        "GPU:2": held[ONE],
        TWO: held[TWO],
        ONE: held["GPU:2"],
    }


def test_devices_that_are_not_alike_may_not():
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


def test_a_tensor_that_crosses_twice_is_one_more():
    found = difference(record(cuts=(cut("a", 5),)), record(cuts=(cut("a", 5), cut("a", 5))), ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((cut("a", 5),), ())


def test_a_tensor_of_another_name_the_same_size_and_way_is_no_change():
    found = difference(record(cuts=(cut("a", 5),)), record(cuts=(cut("b", 5),)), ALIKE)
    assert (found.cuts_added, found.cuts_removed) == ((), ())
    back = difference(record(cuts=(cut("a", 5),)), record(cuts=(cut("a", 5, TWO, ONE),)), [])
    assert (back.cuts_added, back.cuts_removed) == ((cut("a", 5, TWO, ONE),), (cut("a", 5),))


def test_an_op_on_the_host_is_told_once():
    found = difference(record(), record(on_host={"lower": ("AsString",)}), ALIKE)
    assert found.on_host_added == (("lower", "AsString"),)
    again = record(on_host={"lower": ("AsString",)})
    assert difference(again, again, ALIKE).on_host_added == ()


def test_an_op_on_the_host_in_a_renamed_layer_is_no_news_and_another_is():
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
