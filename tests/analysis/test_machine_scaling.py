from dataclasses import replace

import jsonschema
import pytest
from golden_files import GOLDEN, is_golden

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.analysis.machine_scaling import (
    Excess,
    FamilyMemory,
    HardwareComparison,
    Knee,
    MachineScaling,
    ScaledStep,
    Scaling,
    SimulatedStep,
)
from placement_advisor.analysis.scaled_steps import Limit
from placement_advisor.analysis.target_costs import ASSUMED_UNCERTAINTY
from placement_advisor.files.contract import json_text, plain
from placement_advisor.report.pictures.result_plots import draw_scaling
from placement_advisor.report.plans import render_hardware_comparison
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.plans import Scaling as Published
from placement_advisor.simulator.sensitivity import PredictedRatio

# 640 samples a second. In the ways in which costs may be wrong, and without launches last, it takes
# as long.
ONE = ScaledStep(
    scaling=Scaling.WEAK,
    family="single",
    devices=1,
    used=1,
    samples=64,
    step_ns=100_000_000,
    alone_per_s=640.0,
    ratio=None,
    without_launches=None,
    limit=None,
    if_wrong_ns=(100_000_000,) * 5,
)


def scaled(devices, speedup, scaling=Scaling.WEAK, *, without_launches=None, limit=Limit.EXCHANGE):
    """Return a step so many times as fast as one device, in a range from 0.8 to 1.25 of it."""
    samples = 64 * devices if scaling is Scaling.WEAK else 64
    step_ns = round(ONE.step_ns * samples / 64 / speedup)
    ends = {"ratio": 1 / speedup, "low": 1 / speedup / 1.25, "high": 1 / speedup / 0.8}
    return replace(
        ONE,
        scaling=scaling,
        family="mirrored",
        devices=devices,
        used=devices,
        samples=samples,
        step_ns=step_ns,
        ratio=PredictedRatio(**ends, doubt=ASSUMED_UNCERTAINTY),
        without_launches=1 / (without_launches or speedup),
        limit=limit,
        if_wrong_ns=(step_ns,) * 5,
    )


MACHINE = MachineScaling(
    label="8xV100",
    answer="split: mirrored at 2.40×",
    verdict=AdviceVerdict.SPLIT,
    doubt=ASSUMED_UNCERTAINTY,
    rows=(
        ONE,
        scaled(2, 1.94, limit=None),
        scaled(4, 3.8, limit=None),
        scaled(8, 4.0),
        scaled(2, 1.8, Scaling.STRONG),
        scaled(4, 2.4, Scaling.STRONG, limit=Limit.LAUNCHES),
        replace(scaled(8, 2.4, Scaling.STRONG), used=4, verdict=AdviceVerdict.SPLIT),
    ),
    steps=(SimulatedStep(Scaling.WEAK, "batch", 2, 128, 110_000_000, False),),
    alone=(ONE, replace(ONE, samples=128, step_ns=200_000_000, fits=False)),
    memory=(
        FamilyMemory("single", 1, 3_000_000_000, 340),
        FamilyMemory("batch", 8, 3_680_000_000, 0),
        FamilyMemory("mirrored", 8, 3_020_000_000, None),
    ),
    memory_bytes=16_000_000_000,
    price_per_hour=3.6,
    notes=("towers: no layer joins two independent towers",),
)
SLOWER = replace(
    MACHINE,
    label="2xT4",
    answer="cannot tell: mirrored at 1.30×",
    verdict=AdviceVerdict.CANNOT_TELL,
    rows=(ONE, scaled(2, 1.3)),
    memory=(),
    memory_bytes=None,
    price_per_hour=0.36,
    notes=(),
)
COMPARED = HardwareComparison(
    model="net", mode="train", batch=64, ops=100, machines=(MACHINE, SLOWER)
)


def told(*rows):
    """Return the text about a machine with these rows, and its line on two devices."""
    machine = replace(MACHINE, rows=rows, price_per_hour=None)
    text = render_hardware_comparison(replace(COMPARED, machines=(machine,)))
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["2"])
    return text, line


def test_the_knee_is_before_what_brings_less_than_half_also_at_the_ends_of_the_ranges():
    # 8 devices are 4.0 times as fast as one, 4 are 3.8 times.
    assert MACHINE.knee(Scaling.WEAK) == Knee(devices=4, at_worst=4, at_best=4)
    # 4 are 2.4 times, 2 are 1.8: at worst 1.44, which is less than 1.5.
    assert MACHINE.knee(Scaling.STRONG) == Knee(devices=2, at_worst=1, at_best=2)
    assert replace(MACHINE, rows=MACHINE.rows[1:]).knee(Scaling.WEAK) is None


def test_more_than_the_devices_can_do_is_no_efficiency_and_counts_only_with_its_cause():
    excess = scaled(2, 2.4, without_launches=1.9)
    assert excess.excess is Excess.LAUNCHES
    assert excess.speedup.median == pytest.approx(2.4)
    assert excess.efficiency is None
    assert told(ONE, excess)[1].endswith(
        "2.40× (1.92–3.00)           –  nothing: more threads launch; 1.90× if launches cost "
        "nothing"
    )
    level = scaled(2, 2.0)
    assert (level.excess, level.efficiency) == (None, pytest.approx(1.0))
    strange = scaled(2, 2.4, without_launches=2.1)
    assert strange.excess is Excess.UNEXPLAINED
    assert (strange.speedup, strange.efficiency) == (None, None)
    assert replace(MACHINE, rows=(ONE, strange)).knee(Scaling.WEAK) == Knee(1, 1, 1)
    text, line = told(ONE, strange)
    answer, *lines = text.splitlines()[1:]
    assert answer == "8xV100: split: mirrored at 2.40×"
    assert line.endswith("over 2×, and the simulation does not show why: not counted")
    assert not any("2.40×" in line or "pays" in line for line in lines)


def test_text_and_json_are_the_golden_ones():
    text = render_hardware_comparison(COMPARED)
    assert text == (GOLDEN / "hardware_comparison.txt").read_text(encoding="utf-8")
    published = Published.of(COMPARED)
    jsonschema.validate(plain(published), load_schema("scaling"))
    assert is_golden(json_text(published), "hardware_comparison")
    # 640 samples a second: a million take 0.434 hours.
    assert MACHINE.cost_per_million(ONE) == pytest.approx(1e6 / 640 / 3600 * 3.6)
    assert MACHINE.cost_per_million(scaled(2, 1.0)) == pytest.approx(2 * 1e6 / 640 / 3600 * 3.6)
    assert replace(MACHINE, price_per_hour=None).cost_per_million(ONE) is None


def test_a_step_that_does_not_fit_on_one_device_is_held_against_none():
    alone = replace(scaled(2, 1.5), alone_per_s=None, ratio=None, without_launches=None)
    text, line = told(alone)
    assert "8xV100: the step does not fit on one device" in text
    assert line.split()[-4:-1] == ["–", "–", "–"]


def machine_taking(label, *step_ns):
    """Return a machine of one device with a step as is, in four ways, and without launches."""
    first, *if_wrong = step_ns
    one = replace(ONE, step_ns=first, if_wrong_ns=tuple(if_wrong))
    return replace(MACHINE, label=label, rows=(one,), price_per_hour=None)


def test_only_what_is_first_whatever_costs_are_has_no_ties():
    old = machine_taking("P100", 1_001, 501, 2_001, 501, 2_001, 900)
    new = machine_taking("H100", 1_000, 200, 2_000, 200, 2_000, 100)
    far = machine_taking("K80", *[9_000] * 6)
    compared = replace(COMPARED, machines=(old, new, far))
    ranked = compared.fastest()
    assert (ranked.machine, ranked.ties, ranked.is_by_launches) == (new, (old,), True)
    assert (
        "most samples per second: a tie: launches by the host decide: 64,000,000 on "
        "1 device of H100, not surely more than P100. If launches cost nothing, H100 is first"
    ) in render_hardware_comparison(compared)
    assert compared.cheapest() is None
    first, second = (machine_taking("A", *[1_000] * 6), machine_taking("B", *[1_300] * 6))
    ranked = replace(COMPARED, machines=(first, second)).fastest()
    # Ops may be 1.25 times as slow against the other's.
    assert ranked.ties == ()
    near = replace(COMPARED, machines=(first, machine_taking("B", *[1_200] * 6))).fastest()
    assert [machine.label for machine in near.ties] == ["B"]
    assert not near.is_by_launches


def test_a_picture_has_a_line_and_a_range_for_each_machine_and_no_ideal():
    figure = draw_scaling(COMPARED)
    says = (
        "8xV100 pays up to 2 devices with the batch shared, up to 4 devices with the batch on each"
    )
    assert figure.get_suptitle().startswith(f"{COMPARED.model}: {says} (simulated)\n")
    strong, weak = figure.axes
    labels = [line.get_label() for line in weak.get_lines()]
    assert [label for label in labels if not label.startswith("_")] == ["8xV100", "2xT4"]
    # N× on N devices, then of each machine its speed-ups, both ends of their range and the knee.
    assert len(weak.get_lines()) == 1 + 2 * 4
    assert "shared" in strong.get_title()
    assert [text.get_text() for text in weak.texts] == ["N× on N devices"]
