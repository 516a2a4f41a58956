"""What is said of machines, and which names are taken out of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sample_calibration import DEVICES, IN_ONE_PROCESS, W0, W1, WORKERS, copy, summary_of
from sample_hosts import summary_of_hosts

from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.report.machine_texts import Redactor, render_calibration

if TYPE_CHECKING:
    from placement_advisor.cost.links import CalibrationSummary


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("sample", summary_of(WORKERS)),
        ("one_process", replace(summary_of(IN_ONE_PROCESS), kept_in=None)),
        ("hosts", summary_of_hosts()),
    ],
)
def test_the_text_is_the_golden_one_and_fits_a_terminal(
    name: str, summary: CalibrationSummary
) -> None:
    text = render_calibration(summary)
    assert text == (GOLDEN / f"calibration_{name}.txt").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 100


def test_how_tensors_travel_is_told() -> None:
    text = render_calibration(replace(summary_of_hosts(), link=HostLink.DIRECT))
    assert "unencrypted (--link direct)" in text


def test_a_cluster_file_is_named_and_used_next_and_a_gpu_in_it_needs_a_preset() -> None:
    text = render_calibration(replace(summary_of(WORKERS), cluster_file="two.toml"))
    assert "\ncluster file       two.toml\n" in text
    assert text.endswith("advisor analyze MODEL.py --hardware two.toml\n")
    gpus = summary_of(WORKERS, tuple(replace(device, kind="GPU") for device in DEVICES))
    assert f"give {W0} a preset in it" in render_calibration(replace(gpus, cluster_file="two.toml"))
    assert "a preset" not in render_calibration(gpus)


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
    hidden = replace(WORKERS.both_ways[ends], one_way_ns=-1)
    text = render_calibration(summary_of(replace(WORKERS, both_ways={ends: hidden})))
    assert "took no time above the noise" in text


NAMES = Redactor({"ann": "user", "box": "machine", "box.lab.org": "machine", "a": "host1"})


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("/home/ann/m.py:3 failed", "PATH:3 failed"),
        ("~/m/model.py, '/tmp/x-1/y'", "PATH, 'PATH'"),
        ("file:/srv/data/x", "file:PATH"),
        ("10.0.0.2:7600 and ::1", "ADDRESS:7600 and ADDRESS"),
        ("[2001:db8::17]:80", "[ADDRESS]:80"),
        ("box.lab.org, box and boxes", "machine, machine and boxes"),
        ("a:0 → b:0", "host1:0 → b:0"),
        ("ann_shift", "ann_shift"),
    ],
)
def test_names_addresses_and_paths_are_taken_out(text: str, rest: str) -> None:
    assert NAMES.text(text) == rest


@pytest.mark.parametrize(
    "text",
    [
        "/job:worker/replica:0/task:1/device:CPU:0",
        "/device:GPU:0",
        "/host:CPU",
        "far/product_1:MatMul",
        "void Eigen::internal::Kernel<float, 2>(int)",
        "tensorflow 2.21.0, driver 535.104.05",
        "took 12:30:59",
        "edge_7_near/product_3;0:0",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    assert NAMES.text(text) == text


def test_json_keeps_its_form() -> None:
    content = {"box": ["ann", 1, None, {"x": True}]}
    assert NAMES.json(content) == {"machine": ["user", 1, None, {"x": True}]}
