from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from placement_advisor.analysis.machine_scaling import (
    FamilyMemory,
    HardwareComparison,
    MachineScaling,
    OneDevice,
    ScaledStep,
    Scaling,
)
from placement_advisor.analysis.scaled_steps import Limit, slowest_of
from placement_advisor.report.analysis.analysis_json import load_schema
from placement_advisor.report.pictures.scaling_plot import draw_scaling
from placement_advisor.report.scaling_json import hardware_comparison_as_json
from placement_advisor.report.scaling_text import render_hardware_comparison

ONE = ScaledStep(
    scaling=Scaling.WEAK,
    family="single",
    devices=1,
    samples=64,
    step_ns=100_000_000,
    efficiency=1.0,
    limit=None,
)


def scaled(devices, efficiency, scaling=Scaling.WEAK, family="mirrored", limit=Limit.EXCHANGE):
    samples = 64 * devices if scaling is Scaling.WEAK else 64
    step_ns = round(ONE.step_ns * samples / 64 / devices / efficiency)
    return replace(
        ONE,
        scaling=scaling,
        family=family,
        devices=devices,
        samples=samples,
        step_ns=step_ns,
        efficiency=efficiency,
        limit=limit,
    )


MACHINE = MachineScaling(
    label="8xV100",
    steps=(
        ONE,
        scaled(2, 0.97, limit=None),
        scaled(2, 0.90, family="batch"),
        scaled(2, 0.9, Scaling.STRONG),
        scaled(4, 0.95, limit=None),
        scaled(4, 0.6, Scaling.STRONG, limit=Limit.LAUNCHES),
        scaled(8, 0.5),
        scaled(8, 0.2, Scaling.STRONG, limit=Limit.LAUNCHES),
    ),
    larger=(),
    memory=(
        FamilyMemory("single", 1, 3_000_000_000, 340),
        FamilyMemory("batch", 8, 3_680_000_000, 0),
        FamilyMemory("mirrored", 8, 3_020_000_000, None),
    ),
    memory_bytes=16_000_000_000,
    price_per_hour=3.6,
    notes=(),
)
SLOWER = replace(
    MACHINE,
    label="2xT4",
    steps=(ONE, scaled(2, 0.6)),
    memory=(),
    memory_bytes=None,
    price_per_hour=0.36,
)
COMPARED = HardwareComparison(
    model="net", mode="train", batch=64, ops=100, machines=(MACHINE, SLOWER)
)


def test_the_slowest_of_more_devices_is_slower():
    assert slowest_of(1) == 1
    # Of two normal draws, the larger one is expected 0.56 standard deviations above the mean.
    assert slowest_of(2) == pytest.approx(1 + 0.015 * 0.564, abs=1e-3)
    assert slowest_of(8) == pytest.approx(1 + 0.015 * 1.424, abs=1e-3)


def test_the_best_family_counts_and_the_knee_is_before_what_brings_less_than_half():
    assert [step.family for step in MACHINE.best(Scaling.WEAK)] == ["single"] + ["mirrored"] * 3
    # 8 devices are 4.0 times as fast as one, 4 are 3.8 times.
    assert MACHINE.knee(Scaling.WEAK).devices == 4
    # 4 are 2.4 times, 2 are 1.8.
    assert MACHINE.knee(Scaling.STRONG).devices == 2


def test_what_a_larger_batch_brings_one_device_makes_no_knee():
    # Faster than the others, since one device that takes as many samples is.
    towers = replace(scaled(2, 0.6, family="towers"), step_ns=60_000_000)
    machine = replace(MACHINE, steps=(*MACHINE.steps, towers))
    assert machine.best(Scaling.WEAK) == MACHINE.best(Scaling.WEAK)
    alone = replace(MACHINE, steps=(ONE, towers))
    assert alone.best(Scaling.WEAK) == (ONE, towers)
    assert alone.knee(Scaling.WEAK) == ONE


def test_a_step_that_does_not_fit_is_no_answer():
    steps = tuple(
        replace(step, limit=Limit.MEMORY) if step.family == "mirrored" else step
        for step in MACHINE.steps
    )
    machine = replace(MACHINE, steps=steps)
    assert [step.family for step in machine.best(Scaling.WEAK)] == ["single", "batch"]
    nowhere = replace(machine, steps=tuple(replace(s, limit=Limit.MEMORY) for s in steps))
    assert nowhere.knee(Scaling.WEAK) is None
    text = render_hardware_comparison(replace(COMPARED, machines=(nowhere,)))
    assert "8xV100: the step does not fit on its devices" in text


def test_a_million_samples_cost_what_their_hours_on_all_devices_cost():
    # 640 samples a second are 434 hours less: a million take 0.434 hours.
    assert MACHINE.cost_per_million(ONE) == pytest.approx(1e6 / 640 / 3600 * 3.6)
    assert MACHINE.cost_per_million(scaled(2, 0.5)) == pytest.approx(2 * 1e6 / 640 / 3600 * 3.6)
    assert replace(MACHINE, price_per_hour=None).cost_per_million(ONE) is None


def test_the_text_begins_with_the_answers_and_marks_the_knees():
    text = render_hardware_comparison(COMPARED)
    assert text.splitlines()[:5] == [
        "net, train, a batch of 64: simulated from assumed costs, nothing was run",
        "8xV100: weak scaling pays up to 4 devices (3.80×), then most is lost to exchange; strong "
        "scaling pays up to 2 devices (1.80×), then most is lost to launches",
        "2xT4: weak scaling pays up to 1 device (1.00×), then most is lost to exchange; strong "
        "scaling pays up to 1 device (1.00×)",
        "most samples per second: 8xV100, 2,432 on 4 devices",
        "least for a million samples: 2xT4, 0.156 on 1 device",
    ]
    marked = [line.split()[:2] for line in text.splitlines() if "◀" in line]
    assert marked == [["4", "mirrored"], ["2", "mirrored"], ["1", "single"], ["1", "single"]]


def test_the_text_says_what_devices_hold_and_how_large_a_batch_fits():
    lines = render_hardware_comparison(COMPARED).splitlines()
    begin = lines.index(
        "8xV100, memory of the fullest device, which has 16.0 GB, a batch of 64 on each"
    )
    assert [line.split() for line in lines[begin + 2 : begin + 6]] == [
        ["1", "single", "3.00", "GB", "340"],
        ["8", "batch", "3.68", "GB", "0"],
        ["8", "mirrored", "3.02", "GB", "–"],
        [],
    ]
    assert not any(line.startswith("2xT4, memory") for line in lines)


def test_the_text_says_what_split_layers_are_held_against():
    larger = (OneDevice(128, 160_000_000, True), OneDevice(256, 310_000_000, False))
    text = render_hardware_comparison(
        replace(COMPARED, machines=(replace(MACHINE, larger=larger),))
    )
    line = (
        "layers split: speed-up over one device that takes all samples of a host "
        "(128 at 800 a second, 256 do not fit)"
    )
    # Below weak scaling, as the batch of strong scaling is that of one device.
    assert text.count(line) == 1
    assert text.index("weak scaling, more") < text.index(line) < text.index("strong scaling, the")


def test_json_follows_its_schema():
    machine = replace(MACHINE, larger=(OneDevice(128, 160_000_000, True),))
    content = hardware_comparison_as_json(replace(COMPARED, machines=(machine, SLOWER)))
    jsonschema.validate(content, load_schema("scaling"))
    assert content["machines"][0]["memory"][1] == {
        "family": "batch",
        "devices": 8,
        "peak_bytes": 3_680_000_000,
        "largest_batch": 0,
    }
    assert content["machines"][0]["one_device_with_larger_batch"] == [
        {"samples": 128, "step_ns": 160_000_000, "samples_per_s": 800.0, "fits": True}
    ]
    assert content["machines"][0]["knee"] == {"weak": 4, "strong": 2}


def test_a_picture_has_a_line_for_each_machine():
    weak, strong = draw_scaling(COMPARED).axes
    labels = [line.get_label() for line in weak.get_lines()]
    assert [label for label in labels if not label.startswith("_")] == ["8xV100", "2xT4"]
    assert "strong" in strong.get_title()
