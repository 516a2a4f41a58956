"""The chain that the end of a step waits for, as searches take it from the compiled event loop."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import PlacedStep, diamond, placed_steps, wired

if TYPE_CHECKING:
    from placement_advisor.simulator.schedule import OpRun


def chain(step: PlacedStep) -> list[OpRun]:
    """Return the runs of the chain, the first one first."""
    simulator = step.simulator()
    names = step.cluster.place_names()
    device = [names.index(step.placement.device_of[op.name]) for op in simulator.ops]
    run_of = {run.op: run for run in step.simulate().runs}
    numbers = simulator.chain_at(np.array(device, np.int64)).tolist()
    return [run_of[simulator.ops[i].name] for i in reversed(numbers)]


def test_the_longer_side_of_a_diamond_is_the_chain() -> None:
    step = diamond(latency_ns=1, bytes_per_ns=100.0)
    longest = [run.op for run in chain(step)]
    ends = {run.op: run.end_ns for run in step.simulate().runs}

    assert longest[0] == step.graph.ops[0].name
    assert longest[-1] == step.graph.ops[-1].name
    assert longest[1] == max(("left", "right"), key=lambda name: ends[name])


def test_the_chain_ends_with_what_ends_last_though_it_is_the_first_op() -> None:
    step = wired({"long": ("a", 100), "short": ("b", 10)}, "")
    assert [run.op for run in chain(step)] == ["long"]


@given(placed_steps(hosts=True))
@cases(200)
def test_each_op_waited_for_the_one_before_and_nothing_ends_later(step: PlacedStep) -> None:
    runs = chain(step)
    assume(runs)

    assert runs[-1].end_ns == max(run.end_ns for run in step.simulate().runs)
    for first, then in pairwise(runs):
        assert first.end_ns <= then.start_ns
        feeds_it = any(edge.producer == first.op for edge in step.graph.inputs_of(then.op))
        launch_ns, launched_ns = then.launch or (then.start_ns, then.start_ns)
        if launch_ns == then.ready_ns and then.start_ns == launched_ns:
            assert feeds_it
        else:
            assert first.device == then.device


@given(placed_steps())
def test_on_one_device_the_chain_is_busy_all_the_time(step: PlacedStep) -> None:
    runs = chain(step.on_one_device())
    assume(runs)

    assert sum(run.end_ns - run.start_ns for run in runs) == runs[-1].end_ns - runs[0].start_ns
