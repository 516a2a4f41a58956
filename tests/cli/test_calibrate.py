"""`advisor calibrate`: its wiring on a testbed that gives known figures, and one real run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cli_answers import refusal, told
from command_runs import children_left, run_here
from real_runs import needs_workers
from sample_calibration import WORKERS

from placement_advisor.analysis import calibrate
from placement_advisor.cost.links import calibrated_cluster, with_peaks
from placement_advisor.machine import this_machine
from placement_advisor.machine.calibration import (
    BothWaysTiming,
    CopyTiming,
    calibration_fingerprint,
    stored_calibration,
)
from placement_advisor.machine.cluster_file import load_cluster
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.processes.calls import CallFailure, FailureCause

W0, W1 = "worker:0", "worker:1"
COPIES = tuple(
    CopyTiming(size_bytes=size, copy_ns=200_000 + size, send_ns=50_000, receive_ns=60_000)
    for size in (1_000, 1_000_000)
)
FIGURES = replace(
    WORKERS,
    links={(W0, W1): COPIES, (W1, W0): COPIES},
    both_ways={(W0, W1): BothWaysTiming(size_bytes=1_000, one_way_ns=400, both_ways_ns=600)},
)


class KnownTestbed:
    answer: ClassVar[Any] = FIGURES
    events: ClassVar[list[str]] = []

    def __init__(self, plan, *, scratch, site):
        self.plan = plan
        self.core_clocks = {}

    def start(self):
        self.events.append("start")

    def call(self, function, *args, time_limit_s):
        self.events.append(function.__name__)
        return self.answer

    def close(self):
        self.events.append("close")


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Two cores, a testbed of known figures, an empty cache; what the testbed was asked for."""
    monkeypatch.setattr(this_machine, "usable_cores", lambda: (0, 1))
    monkeypatch.setattr(this_machine, "can_have_private_network", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(calibrate, "preload", lambda: None)
    monkeypatch.setattr(calibrate, "Testbed", KnownTestbed)
    monkeypatch.setattr(KnownTestbed, "events", [])
    monkeypatch.chdir(tmp_path)
    return KnownTestbed.events


def name():
    return calibration_fingerprint(plan_testbed(TestbedKind.WORKERS, 2))


def test_figures_are_measured_anew_shown_and_kept(known):
    ran = run_here("calibrate", "--open-ports")
    assert ran.code == 0, ran.err
    assert known == ["start", "calibrate", "close", "close"]
    assert ran.out.startswith("calibrated 2 CPU stand-ins (1 core each, gRPC), TensorFlow ")
    assert f"{name()}.json" in ran.out
    assert ran.out.endswith("advisor analyze MODEL.py\n")
    assert stored_calibration(name()) == FIGURES
    assert "warning" not in ran.err  # A private network can be had.
    assert "advisor: calibrating the testbed" in ran.err
    replace(FIGURES, op_ns=7).save(name(), testbed="workers")
    run_here("calibrate", "--quiet")
    assert "calibrate" in known
    assert stored_calibration(name()) == FIGURES


def test_the_json_keeps_its_contract_and_quiet_says_nothing_else(known, monkeypatch):
    monkeypatch.setattr(this_machine, "can_have_private_network", lambda: False)
    ran = run_here("calibrate", "--json", "--quiet", "-o", "two.toml", "--open-ports")
    content = told(ran, "calibration")
    assert ran.err == ""
    assert content["testbed"]["kind"] == "workers"
    assert content["fingerprint"] == name()
    assert content["cluster_file"] == "two.toml"
    assert ["no private network" in warning for warning in content["warnings"]] == [True]


def test_the_cluster_file_is_read_as_what_was_measured(known, tmp_path):
    run_here("calibrate", "-q", "-o", "two.toml")
    cluster = load_cluster(tmp_path / "two.toml")
    devices = plan_testbed(TestbedKind.WORKERS, 2).devices
    measured = calibrated_cluster(devices, FIGURES, launch_overhead_ns=FIGURES.op_ns)
    assert cluster == with_peaks(measured, FIGURES)
    # 2 · 256³ operations in 250 µs.
    assert cluster.devices[0].peak_flops_per_s == pytest.approx(2 * 256**3 / 250e-6)
    assert (tmp_path / "two.toml").read_text().startswith("# Written by `advisor calibrate`")


def test_a_cache_that_cannot_be_written_is_told(known, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    ran = run_here("calibrate", "-q")
    assert ran.code == 0
    assert "\nnot kept " in ran.out


def refused(*words):
    return refusal(run_here("calibrate", *words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--testbed", "none"), "nothing can run here: --testbed none"),
        (("--devices", "3"), "3 devices need 3 cores"),
        (("--testbed", "gpus"), "2 devices asked for, 0 GPUs found"),
        (("-o", "two.json"), "-o two.json: not the name of a cluster file"),
        (("-o", "nowhere/two.toml"), "nowhere/two.toml: cannot be written"),
        (("--devices", "1"), "--devices"),
    ],
)
def test_what_cannot_be_done_is_one_error_before_anything_starts(known, words, message):
    assert message in refused(*words)
    assert known == []


def test_figures_that_cannot_be_used_are_an_error_and_are_not_kept(known, monkeypatch, tmp_path):
    noisy = replace(FIGURES, links={(W0, W1): (replace(COPIES[0], copy_ns=-5), COPIES[1])})
    monkeypatch.setattr(KnownTestbed, "answer", noisy)
    assert "measure again on a quieter machine" in refused("-o", "two.toml")
    assert stored_calibration(name()) is None
    assert not (tmp_path / "two.toml").exists()
    assert known[-1] == "close"
    died = CallFailure(cause=FailureCause.CRASHED, message="worker:1 was killed", output_tail="")
    monkeypatch.setattr(KnownTestbed, "answer", died)
    assert "calibration failed: worker:1 was killed" in refused()


@pytest.mark.slow
@needs_workers
def test_two_real_workers(advisor, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "two.toml"
    ran = advisor("calibrate", "--testbed", "workers", "--json", "-q", "-o", str(file))
    content = told(ran, "calibration")
    if content["kept_in"] is None:  # Other work disturbed it: good for now, but not for later.
        assert max(device["reference_p90_ratio"] for device in content["devices"]) >= 1.3
    else:
        assert Path(content["kept_in"]).is_file()
    assert load_cluster(file).device_names() == (W0, W1)
    for device in content["devices"]:
        # A core does 1 to 1,000 Gflop/s, and one step in ten cannot be faster than the median.
        assert 2 * 256**3 / 1e12 < device["reference_ns"] / 1e9 < 2 * 256**3 / 1e9
        assert device["reference_p90_ratio"] >= 1
    for link in content["links"]:
        small, *_, large = link["copies"]
        assert large["copy_ns"] > small["copy_ns"] > 0
        assert large["send_ns"] > small["send_ns"]
    (pair,) = content["both_ways"]
    assert 0.5 < pair["ratio"] < 5
    assert children_left() == []
