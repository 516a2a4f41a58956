"""Machines from a description: what it may say, and what the figures behind it must keep."""

import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.devices import Basis
from placement_advisor.machine.gpu_facts import facts_of_card, gpu_facts, gpus_with_facts
from placement_advisor.machine.presets import (
    MAX_DEVICES,
    device_preset,
    hardware_figures,
    link_preset,
    read_hardware,
)

FIGURES = hardware_figures()
PRESETS = {
    f"{table}.{name}": FIGURES[table][name]
    for table in ("devices", "gpus", "hosts", "links", "collectives")
    for name in FIGURES[table]
} | {name: FIGURES[name] for name in ("copies", "dispatch", "sockets", "alike", "exchange")}
NOTICE_NS = 40_000


def bandwidth(link):
    return link_preset(link, source="a", target="b").bandwidth_bytes_per_s


def latency(link):
    return link_preset(link, source="a", target="b").latency_ns


def refusal(text):
    with pytest.raises(AdvisorError) as caught:
        read_hardware(text)
    assert caught.value.hint is not None
    return caught.value.message


def test_copies_between_cards_take_their_link_or_go_through_the_host():
    # 25 µs, and 76 MB at 7.6 GB/s are 10 ms; its reader is told 40 µs later.
    for text in ("2xK80", "2xK80-PCIe", "2xK80-PCIe3"):
        link = read_hardware(text).link("GPU:0", "GPU:1")
        assert link.transfer_ns(76_000_000) == 25_000 + 10_000_000 + NOTICE_NS

    for text, generation in (("2xRTX4090-PCIe4", "PCIe4"), ("2xRTX2080Ti", "PCIe3")):
        staged = read_hardware(text).link("GPU:0", "GPU:1")
        host = read_hardware(text).link("CPU:0", "GPU:1")
        assert staged.bandwidth_bytes_per_s == bandwidth(f"{generation}-staged")
        assert staged.bandwidth_bytes_per_s < host.bandwidth_bytes_per_s == bandwidth(generation)


def test_devices_are_joined_by_the_link_that_is_named_or_the_best_that_they_have():
    for device, generation in (("V100", "NVLink2"), ("A100", "NVLink3"), ("H100", "NVLink4")):
        link = read_hardware(f"2x{device}-NVLink").link("GPU:1", "GPU:0")
        assert link.bandwidth_bytes_per_s == bandwidth(generation)
    assert read_hardware("4xA100") == read_hardware("4xA100-NVLink3")
    assert read_hardware("2xGTX1080") == read_hardware("2xGTX1080-PCIe3")
    assert read_hardware("V100+A100") == read_hardware("V100+A100-PCIe3")
    assert read_hardware("2xv100-32gb-nvlink") == read_hardware("2xV100-32GB-NVLink2")


def test_a_card_whose_name_looks_like_a_card_and_its_link_is_that_card():
    (card, _) = read_hardware("2xV100-PCIe").devices
    assert card.gpu == "V100-PCIe"
    assert read_hardware("2xV100-PCIe") == read_hardware("2xV100-PCIe-PCIe3")
    assert {device.gpu for device in read_hardware("2xV100-PCIe3").devices} == {"V100-SXM2"}


@pytest.mark.parametrize("preset", FIGURES["devices"])
def test_a_device_has_the_figures_of_its_preset_by_any_of_its_names(preset):
    alone = read_hardware(preset)
    for name in FIGURES["devices"][preset].get("aliases", ()):
        assert read_hardware(name) == alone
        assert device_preset(name, name="GPU:0", host="CPU:0") == alone.devices[0]


def test_devices_have_names_of_their_own_and_links_that_are_there_one_of_them_pcie():
    names = [
        name.casefold()
        for preset, table in FIGURES["devices"].items()
        for name in (preset, *table.get("aliases", ()))
    ]
    assert len(set(names)) == len(names)

    for name, table in FIGURES["devices"].items():
        assert {"PCIe3"} <= set(table["links"]) <= set(FIGURES["links"]), name


def test_a_bridge_joins_pairs_and_other_cards_use_pcie():
    pair = read_hardware("2xRTX3090-NVLink")
    assert pair.link("GPU:0", "GPU:1").bandwidth_bytes_per_s == bandwidth("NVLink3-GA102")
    assert pair.link("CPU:0", "GPU:1").bandwidth_bytes_per_s == bandwidth("PCIe4")
    three = read_hardware("3xRTX3090-NVLink")
    assert three.link("GPU:1", "GPU:0").bandwidth_bytes_per_s == bandwidth("NVLink3-GA102")
    for ends in (("GPU:1", "GPU:2"), ("GPU:2", "GPU:0")):
        assert three.link(*ends) == read_hardware("3xRTX3090").link(*ends)
    assert read_hardware("3xRTX3090") == read_hardware("3xRTX3090-PCIe4")


def test_peers_and_the_host_are_linked_both_ways_in_the_order_of_the_description():
    cluster = read_hardware("2xGTX1080Ti+GTX1080-PCIe3")
    assert cluster.device_names() == ("GPU:0", "GPU:1", "GPU:2")
    assert [device.memory_bytes for device in cluster.devices] == [11 * 2**30, 11 * 2**30, 2**33]
    assert {device.host for device in cluster.devices} == {"CPU:0"}
    assert [host.name for host in cluster.hosts] == ["CPU:0"]

    cluster = read_hardware("2xV100-NVLink")
    pairs = {(link.source, link.target): link.bandwidth_bytes_per_s for link in cluster.links}
    nvlink, pcie = bandwidth("NVLink2"), bandwidth("PCIe3")
    assert pairs == {
        ("GPU:0", "GPU:1"): nvlink,
        ("GPU:1", "GPU:0"): nvlink,
        **{("CPU:0", f"GPU:{i}"): pcie for i in range(2)},
        **{(f"GPU:{i}", "CPU:0"): pcie for i in range(2)},
    }


def test_copies_share_the_lanes_of_a_gpu_but_not_with_nvlink():
    cluster = read_hardware("3xGTX1080-PCIe3")
    channel = cluster.link("GPU:0", "GPU:1").channel
    assert channel is not None
    assert cluster.link("GPU:0", "GPU:2").channel == channel
    assert cluster.link("GPU:0", "CPU:0").channel == channel
    assert cluster.link("GPU:1", "GPU:0").channel != channel

    cluster = read_hardware("2xV100-NVLink")
    assert cluster.link("GPU:0", "GPU:1").channel != cluster.link("GPU:0", "CPU:0").channel


def test_more_than_four_cards_hang_in_pairs_on_switches_of_two_sockets():
    cluster = read_hardware("8xV100-PCIe")
    up = cluster.link("GPU:0", "CPU:0").channel
    assert up == cluster.link("GPU:1", "CPU:0").channel == cluster.link("GPU:1", "GPU:2").channel
    assert up != cluster.link("GPU:2", "CPU:0").channel
    assert cluster.link("CPU:0", "GPU:6").channel == cluster.link("CPU:0", "GPU:7").channel
    # Within a switch, nothing is shared with the other card.
    there, back = cluster.link("GPU:0", "GPU:1"), cluster.link("GPU:1", "GPU:0")
    assert there.channel not in (up, back.channel)
    across = cluster.link("GPU:3", "GPU:4")
    assert across.channel == cluster.link("GPU:0", "GPU:7").channel
    assert across.channel != cluster.link("GPU:4", "GPU:3").channel
    assert across.bandwidth_bytes_per_s == FIGURES["sockets"]["bandwidth_bytes_per_s"]


def test_cards_of_two_gpus_hang_in_pairs_on_switches_too():
    cluster = read_hardware("8xK80")
    up = [cluster.link(f"GPU:{i}", "CPU:0").channel for i in (0, 3, 4, 7)]
    assert up[0] == up[1] != up[2] == up[3]


def test_eight_modules_are_a_hybrid_cube_mesh():
    links = {"P100-SXM2": 4, "V100": 6}
    for card, count in links.items():
        cluster = read_hardware(f"8x{card}-NVLink")
        one = bandwidth("NVLink1") if card == "P100-SXM2" else bandwidth("NVLink2") / 2
        for device in cluster.device_names():
            nvlinks = [
                link.bandwidth_bytes_per_s
                for link in cluster.device_links()
                if link.source == device and link.bandwidth_bytes_per_s > bandwidth("PCIe3")
            ]
            assert sum(nvlinks) == pytest.approx(count * one)
        # Not wired: no peer access over NVLink from one four to another but to the device's like.
        assert cluster.link("GPU:0", "GPU:5").bandwidth_bytes_per_s < one
        assert cluster.link("GPU:0", "GPU:4").bandwidth_bytes_per_s >= one


def test_a_copy_to_another_host_goes_over_three_links_and_waits_for_messages():
    cluster = read_hardware("2x(2xV100-NVLink)-Ethernet100")
    assert [device.host for device in cluster.devices] == ["CPU:0", "CPU:0", "CPU:1", "CPU:1"]
    assert cluster.link("GPU:0", "GPU:1").bandwidth_bytes_per_s == bandwidth("NVLink2")
    legs = ("PCIe3", "Ethernet100", "PCIe3")
    link = cluster.link("GPU:0", "GPU:2")
    assert link.latency_ns == sum(map(latency, legs)) + 2 * NOTICE_NS
    seconds_per_byte = sum(1 / bandwidth(leg) for leg in legs)
    assert math.isclose(link.bandwidth_bytes_per_s, 1 / seconds_per_byte)
    assert link.channel == cluster.link("GPU:1", "GPU:3").channel
    message_ns = latency("Ethernet100")
    starts_ns = [cluster.remote_start_ns(device) for device in cluster.devices]
    ends_ns = [cluster.remote_end_ns(device) for device in cluster.devices]
    assert starts_ns == ends_ns == [0, 0, message_ns, message_ns]
    assert cluster.link("GPU:0", "GPU:2").request_ns == message_ns
    assert cluster.link("GPU:2", "GPU:3").request_ns == 0

    cluster = read_hardware("2xV100")
    assert cluster.dispatch.step_overhead_ns > 0
    assert {cluster.remote_start_ns(device) for device in cluster.devices} == {0}
    assert {cluster.remote_end_ns(device) for device in cluster.devices} == {0}


@pytest.mark.parametrize("text", ["3xT4", "K80+A100+RTX4090", "2x(2xH100)-Ethernet10", "64xT4"])
def test_every_two_ends_are_linked_and_all_is_assumed(text):
    cluster = read_hardware(text)
    ends = len(cluster.devices) + len(cluster.hosts)
    assert len({(link.source, link.target) for link in cluster.links}) == ends * (ends - 1)
    assert {link.basis for link in cluster.links} == {Basis.ASSUMED}


def test_devices_and_links_that_there_are_not_are_answered_with_those_that_there_are():
    message = refusal("2xV10-NVLink")
    assert "unknown device 'V10-NVLink'; there are V100, " in message
    assert all(name in message for name in FIGURES["devices"])
    assert refusal("2xV100-NVLnk").endswith("no link 'NVLnk' joins V100; there are NVLink2, PCIe3")
    assert refusal("2xGTX1080-NVLink").endswith("joins GTX1080; there are PCIe3")
    assert refusal("V100+A100-NVLink").endswith("joins V100 and A100; there are PCIe3")
    message = refusal("2xV100-Ethernet10")
    (suggestion,) = re.findall(r"\S+\)-Ethernet10$", message)
    assert len(read_hardware(suggestion).hosts) == 2


@pytest.mark.parametrize(
    "text",
    [
        *("0xV100", "65xV100", "00xV100", f"{'9' * 900}xV100"),
        *("40xV100+25xV100", "33x(2xV100)-Ethernet10"),
    ],
)
def test_counts_outside_1_to_64_are_refused(text):
    assert refusal(text).endswith(("it may be 1 to 64", " devices; there may be 1 to 64"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "2x", "-", "+", "V100+", "V100 ", "²xV100", "-1xV100", "2x2xV100"),
        *("2x(2xV100)", "2x(2xV100)-NVLink", "0x(V100)-Ethernet10", "2x()-Ethernet10"),
        *("V100-NVLink+V100", "V100-", "2xPCIe3"),
    ],
)
def test_junk_is_refused_with_the_text_and_examples(text):
    assert f"hardware {text!r}: " in refusal(text)


def test_a_long_text_is_refused_before_it_is_matched():
    assert len(refusal("V100+" * 1_000_000)) < 200


@given(st.text(alphabet="0123456789xV10TK8A()+-PCIeNLinkEthr", max_size=40) | st.text())
@example("2x(4xV100-NVLink)-Ethernet100")
def test_any_text_is_a_machine_or_one_error(text):
    try:
        devices = read_hardware(text).devices
    except AdvisorError:
        return
    assert 1 <= len(devices) <= MAX_DEVICES


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_source_or_a_note_and_positive_figures(preset):
    table = PRESETS[preset]
    assert table["sources"] or table.get("note")
    assert set(table["sources"]) <= set(FIGURES["sources"])
    figures = [value for value in table.values() if isinstance(value, int | float)]
    assert figures
    assert all(math.isfinite(figure) and figure > 0 for figure in figures)
    assert set(table.get("measured", ())) <= {
        name for name in table if isinstance(table[name], int | float)
    }
    assert table["sources"] or "measured" not in table or preset == "links.PCIe3-K80"


def test_every_source_is_complete_and_used_and_a_judgement_says_so():
    used = {source for table in PRESETS.values() for source in table["sources"]} | {"tf32"}
    used |= set(FIGURES["launches"]["sources"])
    assert used == set(FIGURES["sources"])
    for title, publisher, address in FIGURES["sources"].values():
        assert "" not in (title, publisher)
        assert re.fullmatch(r"https?://[^\s/]+\.[^\s/]+/\S*", address)

    assert "judgement" in FIGURES["launches"]["note"]
    for name, table in FIGURES["links"].items():
        assert "latency_ns" in table.get("measured", ()) or "judgement" in table["note"], name


def test_datasheets_are_those_of_presets_by_name_and_chip():
    presets = FIGURES["devices"].values()
    assert {table["gpu"] for table in presets} == set(gpus_with_facts())

    capabilities = {}
    for name in gpus_with_facts():
        facts = gpu_facts(name)
        capabilities.setdefault(facts.chip, set()).add(facts.capability)
    assert all(len(found) == 1 for found in capabilities.values())

    with pytest.raises(AdvisorError, match="no datasheet of GPU 'V100'; there are V100-"):
        gpu_facts("V100")


@pytest.mark.parametrize("name", gpus_with_facts())
def test_matrix_units_do_a_power_of_two_as_many_flops(name):
    facts = gpu_facts(name)
    # Units do a power of two as many; H100's are rated at a clock that is 8 % lower.
    for peak in filter(None, (facts.tf32_flops_per_s, facts.half_flops_per_s)):
        doublings = math.log2(peak / facts.peak_flops_per_s)
        assert doublings == pytest.approx(round(doublings), abs=0.12)


@pytest.mark.parametrize(
    ("driver", "chip"),
    [
        ("Tesla V100-SXM2-16GB", "GV100"),
        ("NVIDIA A100-SXM4-80GB", "GA100"),
        ("NVIDIA GeForce RTX 3090", "GA102"),
        *((other, None) for other in ("NVIDIA GeForce GT 710", "", "NVIDIA")),
    ],
)
def test_a_card_is_known_by_what_the_driver_calls_it_and_taken_for_no_other(driver, chip):
    facts = facts_of_card(driver)
    assert (facts and facts.chip) == chip


CORES = {"GK210": 192} | dict.fromkeys(("GP102", "GP104", "GA102", "AD102", "AD104", "GH100"), 128)


@pytest.mark.parametrize("name", FIGURES["gpus"])
def test_the_peak_of_a_gpu_is_that_of_its_cores_at_its_boost_clock(name):
    gpu = gpu_facts(name)
    flops_per_s = 2e6 * gpu.multiprocessors * CORES.get(gpu.chip, 64) * gpu.boost_clock_mhz
    assert flops_per_s == pytest.approx(gpu.peak_flops_per_s, rel=0.011)
    assert 0 < gpu.clock_range < 2


def test_newer_and_wider_links_are_faster():
    for order in (
        ("PCIe3-staged", "PCIe3-K80", "PCIe3", "PCIe4-staged", "PCIe4", "PCIe5"),
        ("PCIe4", "NVLink2", "NVLink3-GA102", "PCIe5", "NVLink4-H100", "NVLink3", "NVLink4"),
        ("NVLink1", "NVLink2"),
        ("Ethernet10", "Ethernet100", "PCIe3-K80"),
    ):
        assert sorted(order, key=bandwidth) == list(order)
    for nvlink in ("NVLink1", "NVLink2", "NVLink3", "NVLink4"):
        assert 10_000 <= latency(nvlink) < latency("PCIe4") < latency("Ethernet100")


def test_tf32_stands_apart_from_the_float32_peak_on_cards_whose_tensor_cores_are_faster():
    faster = {
        name
        for name in FIGURES["devices"]
        if (device := device_preset(name, name="GPU:0")).matrix_flops_per_s is not None
        and device.matrix_flops_per_s > (device.peak_flops_per_s or 0)
    }
    assert faster == {
        *("A100", "A100-80GB", "A100-PCIe", "A100-80GB-PCIe", "H100", "H100-PCIe"),
        *("A10", "A6000", "L4", "L40S"),
    }


def test_ops_and_copies_of_gpus_are_launched_ahead_and_told_later():
    cluster = read_hardware("K80+V100-PCIe3")
    k80, v100 = cluster.devices
    assert (k80.launches_ahead, v100.launches_ahead) == (True, True)
    assert not cluster.hosts[0].launches_ahead
    between, down = cluster.link("GPU:0", "GPU:1"), cluster.link("GPU:1", "CPU:0")
    assert between.sender.time_ns(10**6) == k80.launch_overhead_ns
    assert between.receiver.time_ns(10**6) == v100.launch_overhead_ns
    assert down.sender.time_ns(0) == v100.launch_overhead_ns
    assert down.receiver.time_ns(0) == 0

    cluster = read_hardware("2x(2xV100-NVLink)-Ethernet100")

    def waits_ns(source, target, *legs):
        return cluster.link(source, target).latency_ns - sum(map(latency, legs))

    assert waits_ns("GPU:0", "GPU:1", "NVLink2") == NOTICE_NS
    assert waits_ns("GPU:0", "CPU:0", "PCIe3") == NOTICE_NS
    assert waits_ns("CPU:0", "GPU:2", "Ethernet100", "PCIe3") == NOTICE_NS
    assert waits_ns("CPU:0", "CPU:1", "Ethernet100") == 0
