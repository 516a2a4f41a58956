import math
from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_profiles import crossing

from placement_advisor.cost.collectives import CollectiveTimes
from placement_advisor.errors import AdvisorError, TestbedError
from placement_advisor.files.untrusted import MisfitError
from placement_advisor.machine.nvidia import Connection, Gpu, GpuPair, Gpus
from placement_advisor.machine.testbed_plan import TestbedKind
from placement_advisor.machine.this_machine import OtherWork, Slot
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.remote_hosts import conversation
from placement_advisor.remote_hosts.conversation import decode, encode
from placement_advisor.remote_hosts.host_facts import NetworkPlace, WayTried
from placement_advisor.tf.answers import Prepared, Traced
from placement_advisor.tf.load.model_source import ModelSource

FAILURE = CallFailure(
    cause=FailureCause.CRASHED,
    message="b:0 was killed by SIGSEGV",
    child_ended=True,
    stack=(("model.py", 3),),
)
CROSSING = crossing("a", "a:0", "b:0", size_bytes=None)

simple = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.sampled_from(FailureCause)
)
hashable = simple | st.tuples(simple, simple) | st.frozensets(simple, max_size=3)
sendable = st.recursive(
    hashable,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(hashable, inner, max_size=4)
        | st.builds(CallFailure, cause=inner, message=inner)
    ),
    max_leaves=20,
)


def test_what_json_lacks_is_an_object_that_names_what_it_is():
    value = ("b:0", [1, 2.5, None, True], {1: b"\x00\xff"})
    written = b'{"tuple":["b:0",[1,2.5,null,true],{"dict":[[1,{"bytes":"AP8="}]]}]}'
    assert encode(value) == written
    assert decode(written) == value


@given(sendable)
def test_any_value_comes_back_as_it_was_sent(value):
    back = decode(encode(value))
    assert back == value
    assert kinds(back) == kinds(value)


def kinds(value):
    """Return the types of all that a value holds: 1 equals True and 1.0."""
    if isinstance(value, CallFailure):
        return "failure", kinds(value.cause), kinds(value.message)
    if isinstance(value, dict):
        return "dict", sorted(repr((kinds(key), kinds(held))) for key, held in value.items())
    if isinstance(value, list | tuple | frozenset):
        return type(value), sorted(repr(kinds(each)) for each in value)
    return type(value)


def test_what_json_may_not_have_half_characters_views_and_errors_come_back():
    numbers = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**70, -(10**40)]
    assert repr(decode(encode(numbers))) == repr(numbers)
    for name in ("\udcff.py", "\ud83d\ude00", "é\ud800"):
        assert decode(encode(name)) == name
    assert decode(encode(MappingProxyType({"a": 1}))) == {"a": 1}
    back = decode(encode(TestbedError("no network", hint="allow one")))
    assert (back.message, back.hint) == ("no network", "allow one")
    bare = decode(encode(AdvisorError("no")))
    assert type(bare) is AdvisorError
    assert bare.hint is None


@pytest.mark.parametrize(
    "value",
    [
        FAILURE,
        ModelSource(
            path="m.py",
            name=None,
            mode="train",
            batch_size=32,
            outputs=("score",),
            time_limit_s=300.0,
        ),
        Prepared(moved_ops=("a",), crossings=(CROSSING,), exchanged_bytes={"reduce": None}),
        CollectiveTimes(call_ns=1, launch_ns=2, hop_ns=3, ns_per_byte=0.5),
        NetworkPlace(
            interface=None, mtu_bytes=1_500, load=OtherWork(cores=0.25), has_private_network=True
        ),
        WayTried(small_ns=None, large_passes=False),
        Slot(kind="GPU", number=1),
        Gpus(
            devices=(Gpu(index=0, name="T4", memory_bytes=None),),
            pairs=(GpuPair(first=0, second=1, code="PIX", connection=Connection.PCIE),),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_children_take_and_return_comes_back(value):
    assert decode(encode(value)) == value


def test_names_of_classes_are_told_apart():
    kinds = (*conversation._RECORDS, *conversation._ENUMS, *conversation._ERRORS)
    assert len({kind.__name__ for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j, Traced, TestbedKind.GPUS, print])
def test_what_is_not_listed_cannot_be_sent(value):
    with pytest.raises(TypeError, match="cannot be sent to other hosts"):
        encode([{"deep": (value,)}])


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[1",
        "9" * 5_000,
        "[" * 100_000,
        '{"tuple":[' * 900 + "]}" * 900,
        "{}",
        '{"tuple":[],"list":[]}',
        '{"set":[]}',
        '{"tuple":3}',
        '[1,{"bytes":"?"}]',
        '{"bytes":7}',
        '{"dict":[[1]]}',
        '{"dict":[[[],1]]}',
        '{"frozenset":[[]]}',
        '{"enum":["FailureCause","BORED"]}',
        '{"enum":["FailureCause","__class__"]}',
        '{"error":["SystemExit","0",null]}',
        '{"data":["Popen",{}]}',
        '{"data":["CallFailure",[]]}',
        '{"data":["CallFailure",{}]}',
        '{"data":["CallFailure",{"x":1}]}',
    ],
)
def test_anything_else_is_refused(written):
    with pytest.raises(MisfitError, match="no message of ours"):
        decode(written.encode())


@given(st.binary(max_size=200))
def test_reading_any_bytes_ends_in_a_value_or_a_misfit(written):
    with suppress(MisfitError):
        value = decode(written)
        assert decode(encode(value)) == value or value != value
