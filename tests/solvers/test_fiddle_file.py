"""Reading the format of msr-fiddle, from files that may hold anything."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from fiddle_documents import document, edge, node, three_in_a_row
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.files.foreign_json import MisfitError
from placement_advisor.solvers.fiddle_file import is_fiddle, read_fiddle
from placement_advisor.solvers.problem import Problem


def test_devices_times_and_memory_come_from_the_file() -> None:
    problem = read_fiddle(three_in_a_row(maxCPUs=1))
    accelerators, cpu = problem.pools
    assert problem.ops == ("1", "2", "3")
    assert problem.edges == ((0, 1), (1, 2))
    assert problem.copy_time == (1.0, 1.0, 0.0)
    assert (accelerators.devices, accelerators.work) == (
        ("accelerator:0", "accelerator:1"),
        (2.0, 3.0, 6.0),
    )
    assert (accelerators.capacity_bytes, accelerators.pays_for_copies) == (100, True)
    assert (cpu.devices, cpu.work) == (("CPU:0",), (20.0, 30.0, 60.0))
    assert (cpu.capacity_bytes, cpu.pays_for_copies) == (None, False)


def test_nodes_of_a_color_stay_together_and_those_without_stand_alone() -> None:
    nodes = [node(1, colorClass=7), node(2), node(3, colorClass=7, isBackwardNode=True), node(4)]
    problem = read_fiddle(document(nodes, []))
    assert problem.groups == ((0, 2), (1,), (3,))
    assert problem.backward == {2}


def test_a_node_that_no_accelerator_runs_has_no_work_there() -> None:
    problem = read_fiddle(document([node(1, supportedOnFpga=False)], [], maxCPUs=1))
    assert [pool.work for pool in problem.pools] == [(None,), (10.0,)]


def test_a_size_is_rounded_up_and_a_capacity_down() -> None:
    problem = read_fiddle(document([node(1, size=0.5)], [], maxSizePerFPGA=9.9))
    assert (problem.size_bytes, problem.pools[0].capacity_bytes) == ((1,), 9)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (three_in_a_row(maxFPGAs=0), "maxFPGAs: there is no device"),
        (document([], []), "nodes: 0 nodes; there may be 1 to 20000"),
        (document([node(1), node(1)], []), "nodes[0].id: 1 is defined twice"),
        (document([node(1)], [edge(1, 5)]), "edges[0].destId: there is no node 5"),
        (
            document([node(1), node(2), node(3)], [edge(1, 2), edge(2, 3), edge(3, 1)]),
            "edges: a cycle of 3 nodes: 1 → 2 → 3 → 1",
        ),
        (document([node(1)], [edge(1, 1)]), "edges: a cycle of 1 nodes: 1 → 1"),
        (
            document([node(1), node(2), node(3)], [edge(1, 2, 1.0), edge(1, 3, 2.0)]),
            "edges[1].cost: 2, and 1 on another edge of the same source",
        ),
        (
            document([node(1, fpgaLatency=-1.0)], []),
            "nodes[0].fpgaLatency: -1.0 is not a number from 0 to 3e+16",
        ),
        (
            document([node(1, size="big")], []),
            "nodes[0].size: 'big' is not a number from 0 to 1e+14",
        ),
        (
            document([node(1, supportedOnFpga=2)], []),
            "nodes[0].supportedOnFpga: 2 is neither 0 nor 1",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(MisfitError) as raised:
        read_fiddle(wrong)
    assert str(raised.value) == message


def test_other_json_does_not_claim_to_be_of_this_format() -> None:
    assert is_fiddle(three_in_a_row())
    assert not is_fiddle({"nodes": []})
    assert not is_fiddle([1])


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=2), st.just([])
)


@given(data=st.data())
def test_whatever_a_field_holds_reading_ends_in_a_problem_or_a_misfit(data: st.DataObject) -> None:
    damaged = copy.deepcopy(three_in_a_row())
    where = data.draw(st.sampled_from([damaged, damaged["nodes"][1], damaged["edges"][0]]))
    where[data.draw(st.sampled_from(sorted(where)))] = data.draw(_VALUES)
    with contextlib.suppress(MisfitError):
        assert isinstance(read_fiddle(damaged), Problem)
