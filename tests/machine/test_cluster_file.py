"""Cluster files: what a hand may write, what is refused and with which line."""

from dataclasses import fields, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sample_values import links_between

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.cluster_file import cluster_as_toml, load_cluster, read_cluster
from placement_advisor.machine.devices import Basis, Cluster, CopyWork, Device, Dispatch, Link
from placement_advisor.machine.presets import device_preset, link_preset

TEXT = """\
# A desk: two uneven cards, the second overclocked.
[[devices]]
name = "GPU:0"
preset = "GTX1080Ti"
host = "CPU:0"

[[devices]]
name = "GPU:1"
kind = "GPU"
host = "CPU:0"
peak_flops_per_s = 9e12
memory_bytes = 8_589_934_592

[[hosts]]
name = "CPU:0"
preset = "Xeon8280"
memory_bytes = 32_000_000_000

[[links]]
between = ["GPU:0", "GPU:1"]
latency_ns = 20_000
bandwidth_bytes_per_s = 5.7e9  # no peer access
sender = { per_copy_ns = 100, ns_per_byte = 0.5 }

[[links]]
between = ["CPU:0", "GPU:0"]
preset = "PCIe3"
channel = "slot 1"

[[links]]
source = "CPU:0"
target = "GPU:1"
preset = "PCIe3"
latency_ns = 9_000

[[links]]
source = "GPU:1"
target = "CPU:0"
preset = "PCIe3"
basis = "measured"

[dispatch]
step_overhead_ns = 100_000
"""


def read(text):
    return read_cluster(text.encode(), "desk.toml")


def refusal(old, new):
    """Return the error of the text in which ``old``, which stands there once, is ``new``."""
    assert TEXT.count(old) == 1, old
    with pytest.raises(AdvisorError) as caught:
        read(TEXT.replace(old, new))
    assert caught.value.hint is not None
    return caught.value.message


def test_a_file_says_devices_links_and_dispatch():
    cluster = read(TEXT)
    assert cluster.devices == (
        device_preset("GTX1080Ti", name="GPU:0", host="CPU:0"),
        Device(name="GPU:1", kind="GPU", host="CPU:0", peak_flops_per_s=9e12, memory_bytes=2**33),
    )
    host = device_preset("Xeon8280", name="CPU:0")
    assert cluster.hosts == (replace(host, memory_bytes=32 * 10**9),)
    assert cluster.dispatch == Dispatch(step_overhead_ns=100_000)
    assert len(cluster.links) == 6
    # 100 + 0.5 · 1000 of the copy are work of the sender.
    link = cluster.link("GPU:1", "GPU:0")
    assert link.sender.time_ns(1_000) == 600
    assert link.transfer_ns(5_700) == 20_000 + 1_000
    pcie = link_preset("PCIe3", source="CPU:0", target="GPU:1")
    assert cluster.link("CPU:0", "GPU:1") == replace(pcie, latency_ns=9_000)
    assert cluster.link("GPU:0", "CPU:0").channel == "slot 1"
    # What is not said to be measured is assumed.
    assert cluster.link("GPU:0", "GPU:1").basis is Basis.ASSUMED
    assert cluster.link("GPU:1", "CPU:0").basis is Basis.MEASURED


def test_between_more_than_two_means_each_with_each_and_one_device_needs_no_link():
    text = 'between = ["a", "b", "c"]\npreset = "NVLink3"\n'
    devices = "".join(f'[[devices]]\nname = "{name}"\npreset = "A100"\n' for name in "abc")
    cluster = read(f"{devices}[[links]]\n{text}")
    assert {(link.source, link.target) for link in cluster.links} == set(permutations("abc", 2))

    assert read('[[devices]]\nname = "a"\nkind = "CPU"\n').links == ()


@pytest.mark.parametrize(
    ("old", "values", "where", "needs"),
    [
        (
            "5.7e9",
            ("0", "-5.7e9", "nan", "inf", '"5.7e9"', "true", "[5.7e9]", "5.7"),
            "line 22: links[0].bandwidth_bytes_per_s: ",
            "is not a number of bytes/s from 1e+06 to 1e+15",
        ),
        (
            "9e12",
            ("0", "-9e12", "nan", "-inf", "9"),
            "line 11: devices[1].peak_flops_per_s: ",
            "a number of flop/s",
        ),
        (
            "20_000",
            ("-1", "1.5", "nan", "true", f"1{'0' * 30}"),
            "line 21: links[0].latency_ns: ",
            "a whole number of ns",
        ),
        (
            'host = "CPU:0"\npeak',
            [f'host = "{name}"\npeak' for name in ("CPU:1", "GPU:0", "GPU:1")],
            "line 10: devices[1].host: ",
            "there are CPU:0",
        ),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_line_and_what_it_needs(old, values, where, needs):
    for value in values:
        message = refusal(old, value)
        assert message.startswith(f"desk.toml, {where}")
        assert needs in message


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ("[[0, 9]]", "curve: 1 copies; a curve needs 2"),
        ("[[0, 9], [8, 7]]", "curve: copy 1 needs more bytes than the one before, and no fewer ns"),
        ("[[8, 7], [8, 9]]", "curve: copy 1 needs more bytes"),
        ("[[0, 9], [8]]", "curve[1]: [8] is not [size_bytes, ns]"),
        ("[[0, 9], [-8, 9]]", "curve[1][0]: -8 is not a number of bytes from 0 to 10^15"),
        ("[[0, 9], [8, nan]]", "curve[1][1]: nan is not a whole number of ns"),
        ("[0, 9]", "curve[0]: 0 is not [size_bytes, ns]"),
    ],
)
def test_a_curve_that_is_none_is_refused_with_its_line(curve, expected):
    message = refusal("20_000\n", f"20_000\ncurve = {curve}\n")
    assert message.startswith(f"desk.toml, line 22: links[0].{expected}")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('preset = "GTX1080Ti"', 'preset = "GTX1080TI"', "line 4: devices[0].preset: unknown"),
        ("memory_bytes = 8_589", "memory_bytes = -8_589", "line 12: devices[1].memory_bytes: -8"),
        ('kind = "GPU"\n', "", "line 7: devices[1]: needs a preset or a kind"),
        ('kind = "GPU"', "kind = 3", "line 9: devices[1].kind: 3 is not GPU or CPU"),
        ('name = "GPU:1"', 'name = "GPU:0"', "line 8: devices[1].name: 'GPU:0' is defined twice"),
        ('name = "GPU:1"', 'name = ""', "line 8: devices[1].name: '' is not a name"),
        ('name = "GPU:1"', 'name = "a\\nb"', "line 8: devices[1].name: 'a\\nb' is not a name"),
        ('name = "GPU:1"\n', "", "line 7: devices[1]: no field 'name'"),
        (
            "peak_flops_per_s",
            "peak_flops",
            "line 11: devices[1].peak_flops: unknown key; did you mean peak_flops_per_s?",
        ),
        ('["GPU:0", "GPU:1"]', '["GPU:0", "GPU:2"]', "line 20: links[0].between[1]: 'GPU:2' is no"),
        ('["GPU:0", "GPU:1"]', '["GPU:0", "GPU:0"]', "line 19: links[0]: a link needs ends that"),
        ('["GPU:0", "GPU:1"]', '["GPU:0"]', "line 19: links[0]: a link needs ends that"),
        ('["GPU:0", "GPU:1"]', '"GPU:0"', "line 20: links[0].between: 'GPU:0' is not a list"),
        ('["CPU:0", "GPU:0"]', '["GPU:1", "GPU:0"]', "line 25: links[1]: from 'GPU:1' to 'GPU:0'"),
        ('target = "CPU:0"\n', "", "line 36: links[3]: needs between, or else source and target"),
        (
            'target = "GPU:1"',
            'between = ["CPU:0", "GPU:1"]',
            "line 30: links[2]: needs between, or else source and target",
        ),
        ("latency_ns = 20_000\n", "", "line 19: links[0]: needs a preset, or else latency_ns and"),
        ('preset = "PCIe3"\nchannel', 'preset = "PCI"\nchannel', "line 27: links[1].preset: unk"),
        ("per_copy_ns = 100", "per_copy_ns = -1", "line 23: links[0].sender.per_copy_ns: -1 is"),
        ("ns_per_byte = 0.5", "ns_per_byte = nan", "line 23: links[0].sender.ns_per_byte: nan is"),
        ('basis = "measured"', 'basis = "guessed"', "line 40: links[3].basis: 'guessed' is not m"),
        ("[dispatch]", "[dispatcher]", "line 42: dispatcher: unknown key; did you mean dispatch?"),
        ("step_overhead_ns", "step_ns", "line 43: dispatch.step_ns: unknown key; did you mean asl"),
        ("step_overhead_ns = 100_000", "step_overhead_ns = ", "line 43: not valid TOML: Invalid v"),
        ("[[hosts]]", "[hosts]", "line 14: hosts: {"),
        ("# A desk:", "schema_version = 2 #", "line 1: schema_version: 2 is newer than the 1"),
        ("# A desk:", "schema_version = 0 #", "line 1: schema_version: 0 is not a version"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(old, new, expected):
    at = f"desk.toml, {expected}"
    assert refusal(old, new)[: len(at)] == at


def test_devices_that_no_link_joins_are_refused_by_their_ends():
    start = TEXT.index('[[links]]\nsource = "GPU:1"')
    message = refusal(TEXT[start : TEXT.index("[dispatch]")], "")
    assert message.startswith(
        "desk.toml, line 14: hosts[0]: no link goes from 'GPU:1' to 'CPU:0'; each device"
    )

    message = refusal(TEXT[TEXT.index("[[links]]") : TEXT.index("[dispatch]")], "")
    assert message.startswith("desk.toml, line 7: devices[1]: no link goes from 'GPU:0' to 'GPU:1'")


@pytest.mark.parametrize("count", [0, 65])
def test_a_file_of_no_devices_or_more_than_are_searched_is_refused(count):
    text = "".join(f'[[devices]]\nname = "{i}"\npreset = "T4"\n' for i in range(count))
    said = rf"^desk\.toml.*: devices: {count} devices; there may be 1 to 64"
    with pytest.raises(AdvisorError, match=said):
        read(text)


def test_a_file_is_loaded_and_named_in_errors(tmp_path):
    path = tmp_path / "desk.toml"
    path.write_text(TEXT, encoding="utf-8")
    assert load_cluster(path) == read(TEXT)
    path.write_bytes(b"\xff")
    with pytest.raises(AdvisorError, match=r"desk\.toml: not valid TOML: 'utf-8' codec"):
        load_cluster(path)
    for absent in (tmp_path / "no.toml", tmp_path):
        with pytest.raises(AdvisorError, match=str(absent)):
            load_cluster(absent)


@pytest.mark.parametrize(
    ("kind", "table"),
    [(Device, "[[devices]]"), (Link, "[[links]]"), (CopyWork, "sender"), (Dispatch, "[dispatch]")],
)
def test_every_field_that_is_written_can_be_read(kind, table):
    old = "sender = { " if table == "sender" else f"{table}\n"
    new = f"{old}unknown = 1, " if table == "sender" else f"{old}unknown = 1\n"
    message = outcome(TEXT.replace(old, new, 1).encode())
    _, known = message.split("unknown key; there are ")
    assert {field.name for field in fields(kind)} <= set(known.split(", "))


def test_a_fit_of_numpy_can_be_stored():
    devices = Device(name="a", kind="CPU"), Device(name="b", kind="CPU")
    links = links_between("ab", 7, bandwidth_bytes_per_s=np.float64(1.5e9))
    cluster = Cluster(devices=devices, links=links)
    assert read(cluster_as_toml(cluster)) == cluster


NAMES = st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=12)
TIMES = st.integers(0, 10**11)
FLOPS = st.floats(1e6, 1e18)
BANDWIDTHS = st.floats(1e6, 1e15)
CURVES = st.one_of(
    st.just(()),
    st.lists(st.tuples(st.integers(0, 10**15), TIMES), min_size=2, max_size=5)
    .map(lambda copies: tuple(zip(*map(sorted, zip(*copies, strict=True)), strict=True)))
    .filter(lambda curve: len({size for size, _ in curve}) == len(curve)),
)
WORK = st.builds(CopyWork, per_copy_ns=TIMES, ns_per_byte=st.floats(0, 1e3))


@st.composite
def clusters(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    hosts = draw(st.integers(0, len(names) - 1))
    host = st.sampled_from(names[:hosts]) if hosts else st.none()
    places = [
        Device(
            name=name,
            kind="CPU" if i < hosts else draw(st.sampled_from(["GPU", "CPU"])),
            host=None if i < hosts else draw(st.none() | host),
            peak_flops_per_s=draw(st.none() | FLOPS),
            matrix_flops_per_s=draw(st.none() | FLOPS),
            memory_bandwidth_bytes_per_s=draw(st.none() | BANDWIDTHS),
            memory_bytes=draw(st.none() | st.integers(10**6, 10**15)),
            launch_overhead_ns=draw(TIMES),
            remote_start_ns=None if i < hosts else draw(st.none() | TIMES),
            remote_end_ns=None if i < hosts else draw(st.none() | TIMES),
        )
        for i, name in enumerate(names)
    ]
    links = [
        Link(
            source=source,
            target=target,
            latency_ns=draw(TIMES),
            bandwidth_bytes_per_s=draw(BANDWIDTHS),
            basis=draw(st.sampled_from(Basis)),
            channel=draw(st.none() | NAMES),
            curve=draw(CURVES),
            sender=draw(WORK),
            receiver=draw(WORK),
            request_ns=draw(TIMES),
            wake_ns=draw(TIMES),
            stream_bytes_per_s=draw(st.none() | BANDWIDTHS),
        )
        for source, target in permutations(names, 2)
    ]
    dispatch = draw(st.builds(Dispatch, step_overhead_ns=TIMES, quantum_ns=TIMES))
    return Cluster(
        devices=tuple(places[hosts:]),
        hosts=tuple(places[:hosts]),
        links=tuple(links),
        dispatch=dispatch,
    )


@given(clusters())
def test_any_cluster_is_read_as_it_was_written(cluster):
    assert read(cluster_as_toml(cluster)) == cluster


def outcome(data):
    """Return the error, None if the data are a cluster."""
    try:
        read_cluster(data, "a.toml")
    except AdvisorError as error:
        return error.message
    return None


@given(st.binary(max_size=200))
@example(b"devices = [" + b"[" * 900)
@example(b"links = 1\n[[devices]]\nname = 'a'\nkind = 'CPU'")
@example(b"[[devices]]\n'' = 1")
@example(b"[[devices]]\n'\\u001b[31m' = 1")
def test_any_bytes_are_a_cluster_or_one_error(data):
    message = outcome(data)
    assert message is None or (message.startswith("a.toml") and message.isprintable())


def test_a_device_has_the_datasheet_of_its_preset_unless_it_is_another_one():
    def gpu(more):
        return read(f'[[devices]]\nname = "a"\npreset = "V100"\n{more}').devices[0].gpu

    assert gpu("") == "V100-SXM2"
    assert gpu("launch_overhead_ns = 4_000") == "V100-SXM2"
    assert gpu("peak_flops_per_s = 14e12") is None
    assert gpu('peak_flops_per_s = 14e12\ngpu = "V100-PCIe"') == "V100-PCIe"

    with pytest.raises(AdvisorError, match=r"line 4: devices\[0\].gpu: no datasheet of GPU 'V101'"):
        read('[[devices]]\nname = "a"\npreset = "V100"\ngpu = "V101"')
