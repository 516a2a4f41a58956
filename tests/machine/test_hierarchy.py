"""Machines of many hosts, by a text or a cluster file: what it says, and what is refused."""

import re
from math import inf, prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.cluster_file import (
    cluster_as_toml,
    load_cluster,
    load_machine,
    read_cluster,
)
from placement_advisor.machine.hierarchy import Machine, Ring, doubled, read_machine
from placement_advisor.machine.presets import hardware_figures, read_hardware

LINKS = hardware_figures()["links"]


def test_a_text_is_a_host_whose_devices_are_doubled_until_all_are_in():
    machine = read_machine("8xV100-NVLink")
    assert machine == Machine(label="8xV100-NVLink", host=read_hardware("8xV100-NVLink"))
    assert machine.hosts == 1
    assert machine.device_counts() == [1, 2, 4, 8]

    assert doubled(1) == [1]
    assert doubled(8) == [1, 2, 4, 8]
    assert doubled(6) == [1, 2, 4, 6]
    assert read_machine("3x(6xV100)-Ethernet10").device_counts() == [1, 2, 4, 6, 12, 18]


def test_each_bracket_is_a_level_and_first_hosts_fill_one_group_after_the_other():
    machine = read_machine("8x(16x(8xH100-NVLink4)-8xInfiniBand400)-Ethernet100")
    assert machine.host == read_hardware("8xH100-NVLink4")
    inner, outer = machine.levels
    assert (inner.members, outer.members) == (16, 8)
    assert inner.bandwidth_bytes_per_s == 8 * LINKS["InfiniBand400"]["bandwidth_bytes_per_s"]
    assert outer.bandwidth_bytes_per_s == LINKS["Ethernet100"]["bandwidth_bytes_per_s"]
    assert outer.message_ns == LINKS["Ethernet100"]["latency_ns"]
    assert machine.hosts == 128
    assert machine.device_counts() == [1 << power for power in range(11)]

    machine = read_machine("2x(4x(V100)-Ethernet100)-Ethernet10")
    members = {
        hosts: [level.members for level in machine.first_levels(hosts)] for hosts in (1, 2, 4, 8)
    }
    assert members == {1: [], 2: [2], 4: [4], 8: [4, 2]}
    with pytest.raises(ValueError, match="no whole groups"):
        machine.first_levels(6)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_number_of_devices_is_one_of_whole_groups(units):
    text = "V100"
    for count in units:
        text = f"{count}x({text})-Ethernet100"
    machine = read_machine(text)
    for devices in machine.device_counts():
        assert prod(level.members for level in machine.first_levels(devices)) == devices


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2x(8xV100)", "a network joins hosts"),
        ("2x(8xV100)-NVLink", "a network joins hosts, not 'NVLink'"),
        ("2x(2x(V100)-Ethernet100)", "a network joins hosts"),
        ("0x(V100)-Ethernet100", "a count of 0; it may be 1 to"),
        ("2x(V100)-0xEthernet100", "a count of 0; it may be 1 to"),
        ("4x(V1000)-Ethernet100", "unknown device 'V1000'"),
        ("2000x(2000x(V100)-Ethernet100)-Ethernet10", "more than 1,048,576 devices"),
        (f"{'9' * 5_000}x(V100)-Ethernet100", "longer than 1,000 characters"),
        ("2x(2x(V100-Ethernet100)-Ethernet10", "no host, or no network, in '2x(V100-Ethernet100'"),
    ],
)
def test_what_a_text_may_not_say_is_told(text, message):
    with pytest.raises(AdvisorError) as caught:
        read_machine(text)
    assert message in caught.value.message
    assert caught.value.hint is not None


def test_where_every_device_is_simulated_infiniband_and_levels_are_refused():
    with pytest.raises(AdvisorError, match="a network joins hosts, not 'InfiniBand400'"):
        read_hardware("2x(V100)-InfiniBand400")
    with pytest.raises(AdvisorError, match=r"levels of hosts are for `advisor compare-hardware`"):
        read_hardware("2x(2x(V100)-8xInfiniBand400)-Ethernet100")


DOCS = Path(__file__).parents[2] / "docs"
HOST = cluster_as_toml(read_hardware("2xV100"))
LEVELS = """
[[levels]]
units = 16
preset = "InfiniBand400"
wires = 8

[[levels]]
units = 8
latency_ns = 20_000
bandwidth_bytes_per_s = 12.5e9
core_bandwidth_bytes_per_s = 25e9
"""


@pytest.fixture
def read(tmp_path):
    path = tmp_path / "cluster.toml"

    def machine(levels):
        path.write_text(HOST + levels, encoding="utf-8")
        return load_machine(path)

    return machine


@pytest.fixture
def refusal(read, tmp_path):
    """Return the error of levels, with lines counted from the first table of levels."""
    above = HOST.count("\n") + 1

    def message(levels):
        with pytest.raises(AdvisorError) as caught:
            read(levels)
        assert caught.value.hint is not None
        message = caught.value.message.removeprefix(f"{tmp_path / 'cluster.toml'}, line ")
        number, problem = message.split(": ", 1)
        return f"{int(number) - above}: {problem}"

    return message


def test_a_level_has_units_uplinks_and_a_core(read):
    machine = read(LEVELS)
    assert machine.host == read_hardware("2xV100")
    inner, outer = machine.levels
    assert inner.core_bandwidth_bytes_per_s == inf
    assert outer == Ring(
        members=8,
        bandwidth_bytes_per_s=12.5e9,
        core_bandwidth_bytes_per_s=25e9,
        message_ns=20_000,
        has_trees=True,
    )
    assert machine.hosts == 128


@pytest.mark.parametrize(
    ("host", "levels"),
    [
        ("8xH100-NVLink4", [(16, "8xInfiniBand400"), (8, "Ethernet100")]),
        ("3xT4", [(5, "2xEthernet10")]),
        ("V100", []),
    ],
)
def test_a_file_says_what_the_text_says(host, levels, tmp_path):
    text, toml = host, cluster_as_toml(read_hardware(host))
    for units, uplink in levels:
        text = f"{units}x({text})-{uplink}"
        wires, _, preset = uplink.rpartition("x")
        toml += f'[[levels]]\nunits = {units}\npreset = "{preset}"\nwires = {wires or 1}\n'
    path = tmp_path / "cluster.toml"
    path.write_text(toml, encoding="utf-8")
    found, expected = load_machine(path), read_machine(text)
    assert (found.host, found.levels) == (expected.host, expected.levels)


def test_figures_beside_a_preset_override_it(read):
    level = '[[levels]]\nunits = 2\npreset = "Ethernet100"\n'
    (preset,) = read(level).levels
    (faster,) = read(f"{level}bandwidth_bytes_per_s = 11.9e9\nwires = 2\n").levels
    assert faster.bandwidth_bytes_per_s == 2 * 11.9e9
    assert faster.message_ns == preset.message_ns
    (nearer,) = read(f"{level}latency_ns = 5_000\n").levels
    assert nearer.message_ns == 5_000
    assert nearer.bandwidth_bytes_per_s == preset.bandwidth_bytes_per_s


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("units = 16\n", "", "1: levels[0]: no field 'units'"),
        ("units = 16", "units = 0", "2: levels[0].units: 0 is not a number of units from 1 to"),
        ("units = 16", "units = 1.5", "2: levels[0].units: 1.5 is not a number of units"),
        ("units = 16", "unit = 16", "2: levels[0].unit: unknown key; did you mean units?"),
        ("wires = 8", "wires = true", "4: levels[0].wires: True is not a number of wires from 1"),
        ('"InfiniBand400"', '"NVLink4"', "3: levels[0].preset: 'NVLink4' is not a network; there "),
        ("latency_ns = 20_000\n", "", "6: levels[1]: needs a preset, or else latency_ns and"),
        ("bandwidth_bytes_per_s = 12.5e9\n", "", "6: levels[1]: needs a preset, or else latency"),
        ("12.5e9", "12.5", "9: levels[1].bandwidth_bytes_per_s: 12.5 is not a number of bytes/s"),
        ("25e9", "0", "10: levels[1].core_bandwidth_bytes_per_s: 0 is not a number of bytes/s"),
        ("20_000", "2e4", "8: levels[1].latency_ns: 20000.0 is not a whole number of ns"),
        ("units = 16", "units = 1_000_000", "1: levels: more than 1,048,576 devices"),
        ("[[levels]]\nunits = 16", "[levels]\nunits = 16", "6: not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_its_line(refusal, old, new, expected):
    message = refusal(LEVELS.replace(old, new, 1))
    assert message[: len(expected)] == expected


def test_no_levels_are_one_host_and_more_than_machines_have_are_refused(refusal, read, tmp_path):
    level = '[[levels]]\nunits = 1\npreset = "Ethernet10"\n'
    assert refusal(level * 21) == "0: levels: 21 levels; there may be 0 to 20"

    machine = read("")
    assert machine.levels == ()
    assert machine.host == load_cluster(tmp_path / "cluster.toml")
    assert machine.label == str(tmp_path / "cluster.toml")


def test_where_every_device_is_simulated_levels_of_a_file_are_refused(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(HOST + LEVELS, encoding="utf-8")
    line = HOST.count("\n") + 2
    said = f"line {line}: levels[0]: levels of hosts are for `advisor compare-hardware`; here every"
    for read in (load_cluster, lambda path: read_cluster(path.read_bytes(), str(path))):
        with pytest.raises(AdvisorError, match=re.escape(said)):
            read(path)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("explanation/scaling.md", [(16, 384e9, inf), (8, 400e9, 1.6e12)]),
        ("reference/contracts.md", [(4, 7.5e9, 15e9)]),
    ],
)
def test_levels_of_the_pages_are_read(read, page, expected):
    text = (DOCS / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(\[\[levels\]\].*?)```", text, re.DOTALL)
    assert [
        (level.members, level.bandwidth_bytes_per_s, level.core_bandwidth_bytes_per_s)
        for level in read(block).levels
    ] == expected
