"""Simulated steps as text and as a Chrome trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from simulated_steps import towers, two_gpus

from placement_advisor.cost.table import CostBasis
from placement_advisor.machine.devices import Basis
from placement_advisor.report.steps import chrome_trace, render_simulation

if TYPE_CHECKING:
    from placement_advisor.simulator.schedule import Transfer
    from placement_advisor.simulator.simulator import Simulation


GOLDEN = Path(__file__).parent / "golden"
NAMES = {"worker:0": "GPU:0", "worker:1": "GPU:1"}


def test_the_text_is_the_golden_one() -> None:
    assert render_simulation(towers(renamed=NAMES)) == (GOLDEN / "simulation_sample.txt").read_text(
        encoding="utf-8"
    )


def test_a_device_whose_memory_the_step_exceeds_is_named() -> None:
    text = render_simulation(towers(cluster=two_gpus(memory_bytes=5_000)))
    assert "5.60 kB  GPU:0: does not fit, it has 5.00 kB\n" in text
    assert text.count("does not fit") == 1
    assert "does not fit" not in render_simulation(towers(cluster=two_gpus(memory_bytes=None)))


@pytest.mark.parametrize(
    ("measured", "says"),
    [(0, "every figure assumed"), (2, "2 of 6 links measured"), (6, "1 host, links measured")],
)
def test_what_is_measured_is_not_called_assumed(measured: int, says: str) -> None:
    cluster = two_gpus()
    known = tuple(replace(link, basis=Basis.MEASURED) for link in cluster.links[:measured])
    links = (*known, *cluster.links[measured:])
    text = render_simulation(towers(cluster=replace(cluster, links=links)))
    assert says in text
    assert ("every figure assumed" in text) == (measured == 0)


def test_a_name_cannot_drive_a_terminal() -> None:
    told = towers()
    evil = replace(told.origin, graph_file="a\x1b[31m.gz\nstep")
    text = render_simulation(replace(told, origin=evil))
    assert "\x1b" not in text
    assert "graph        a�[31m.gz step, fingerprint" in text


def test_the_share_of_kernel_formulas_is_said() -> None:
    shares = {
        CostBasis.MEASURED: 0.0,
        CostBasis.KERNEL: 0.3,
        CostBasis.KERNEL_ASSUMED: 0.2,
        CostBasis.ROOFLINE: 0.4,
        CostBasis.GUESSED: 0.1,
    }
    line = render_simulation(replace(towers(), basis_shares=shares)).splitlines()[3]
    assert line == (
        "costs        assumed: formulas of GPU kernels for 50.0 % of the compute time, 20.0 % for "
        "kernels like none that they were fitted to; a roofline from the devices' figures for the "
        "others; 10.0 % of the compute time is guessed from what is known of an op"
    )


def with_copies(*copies: Transfer) -> Simulation:
    told = towers()
    return replace(told, schedule=replace(told.schedule, transfers=copies))


COPIES = towers().schedule.transfers
FIRST = COPIES[0]
OVERLAPPING = (
    FIRST,
    replace(FIRST, producer="ids", start_ns=FIRST.start_ns + 1, end_ns=FIRST.end_ns + 1),
    replace(FIRST, producer="ids", port=1, start_ns=FIRST.end_ns, end_ns=FIRST.end_ns + 5),
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sample", towers()),
        # The sender of each copy works 5 ns for it; the size of one is unknown.
        ("worked", with_copies(*(replace(copy, send_work_ns=5) for copy in COPIES))),
        # Those that overlap on one link have a row each.
        ("overlapping", with_copies(*OVERLAPPING)),
    ],
)
def test_every_device_and_link_has_its_rows_in_the_golden_file(name: str, told: Simulation) -> None:
    golden = (GOLDEN / f"chrome_trace_{name}.json").read_text(encoding="utf-8")
    assert chrome_trace(told.graph, told.schedule) == json.loads(golden)
