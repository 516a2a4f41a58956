from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sample_calibration import DEVICES, IN_ONE_PROCESS, W0, W1, WORKERS, copy, summary_of
from sample_hosts import summary_of_hosts

from placement_advisor.machine.copy_timings import AtOnceTiming
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.report.calibration_text import render_calibration

if TYPE_CHECKING:
    from placement_advisor.cost.calibration_summary import CalibrationSummary

GOLDEN = Path(__file__).parent / "golden"


def test_workers_are_the_golden_text() -> None:
    text = render_calibration(summary_of(WORKERS))
    assert text == (GOLDEN / "calibration_sample.txt").read_text(encoding="utf-8")


def test_devices_of_one_process_are_the_golden_text() -> None:
    text = render_calibration(replace(summary_of(IN_ONE_PROCESS), kept_in=None))
    assert text == (GOLDEN / "calibration_one_process.txt").read_text(encoding="utf-8")


def test_hosts_are_the_golden_text() -> None:
    text = render_calibration(summary_of_hosts())
    assert text == (GOLDEN / "calibration_hosts.txt").read_text(encoding="utf-8")


def test_how_tensors_travel_is_told() -> None:
    text = render_calibration(replace(summary_of_hosts(), link=HostLink.DIRECT))
    assert "unencrypted (--link direct)" in text


def test_pairs_that_noise_hid_are_no_figures() -> None:
    summary = summary_of_hosts()
    network = summary.calibration.network
    assert network is not None
    hidden = AtOnceTiming(size_bytes=1, one_pair_ns=-1, two_pairs_ns=1)
    noisy = replace(network, at_once={("a", "b"): hidden})
    calibration = replace(summary.calibration, network=noisy)
    text = render_calibration(replace(summary, calibration=calibration))
    assert "a → b: 1 B of each took no time above the noise" in text


def test_a_cluster_file_is_named_and_used_next() -> None:
    text = render_calibration(replace(summary_of(WORKERS), cluster_file="two.toml"))
    assert "\ncluster file       two.toml\n" in text
    assert text.endswith("advisor analyze MODEL.py --hardware two.toml\n")


def test_a_gpu_in_a_cluster_file_needs_a_preset() -> None:
    gpus = tuple(replace(device, kind="GPU") for device in DEVICES)
    text = render_calibration(replace(summary_of(WORKERS, gpus), cluster_file="two.toml"))
    assert f"give {W0} a preset in it" in text
    assert "a preset" not in render_calibration(summary_of(WORKERS, gpus))


@pytest.mark.parametrize(("p90", "is_unsteady"), [(1.09, False), (1.1, True), (2.0, True)])
def test_a_core_that_wavers_is_told(p90: float, is_unsteady: bool) -> None:
    calibration = replace(WORKERS, reference_p90={W0: 1.0, W1: p90})
    text = render_calibration(summary_of(calibration))
    assert ("\nunsteady" in text) == is_unsteady


@pytest.mark.parametrize(("far_ns", "is_rough"), [(2_200_000, False), (22_000_000, True)])
def test_copies_that_follow_no_line_are_told(far_ns: int, is_rough: bool) -> None:
    ends = (W0, W1)
    bent = (*WORKERS.links[ends][:2], copy(4_000_000, far_ns))
    text = render_calibration(summary_of(replace(WORKERS, links=WORKERS.links | {ends: bent})))
    assert ("\nrough" in text) == is_rough


def test_times_that_noise_hid_are_no_figures() -> None:
    ends = (W0, W1)
    calibration = replace(
        WORKERS,
        links=WORKERS.links | {ends: (copy(500, -40), *WORKERS.links[ends])},
        both_ways={ends: replace(WORKERS.both_ways[ends], one_way_ns=-1)},
    )
    text = render_calibration(summary_of(calibration))
    assert "worker:0 → worker:1      ?  " in text
    assert "worker:1 → worker:0      ?  " in text  # It has no copy of that size.
    assert "took no time above the noise" in text


@pytest.mark.parametrize("summary", [summary_of(WORKERS), summary_of_hosts()])
def test_no_line_is_wider_than_a_terminal(summary: CalibrationSummary) -> None:
    assert max(map(len, render_calibration(summary).splitlines())) <= 100
