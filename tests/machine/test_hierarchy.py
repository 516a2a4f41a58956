"""Machines of many hosts: what a text says, and how many devices its first hosts are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.hierarchy import Machine, doubled, read_machine
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
        product = 1
        for level in machine.first_levels(devices):
            product *= level.members
        assert product == devices


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
