"""What `import placement_advisor` offers, by hand and against the simulator."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise, permutations, product

import pytest
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import PlacedStep, diamond, edge, op, pair, placed_steps, price

import placement_advisor as pa
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph

TWO = pa.Cluster(
    devices=(pa.Device(name="a", kind="CPU"), pa.Device(name="b", kind="CPU")),
    links=tuple(
        pa.Link(
            source=source,
            target=target,
            latency_ns=10,
            bandwidth_bytes_per_s=1e9,
            basis=pa.Basis.ASSUMED,
        )
        for source, target in permutations("ab", 2)
    ),
)
APART = OpGraph([op("left", 8), op("right", 8)], [])


def chain(*names: str) -> OpGraph:
    return OpGraph(
        [op(name, 8) for name in names],
        [edge(*ends, 8) for ends in pairwise(names)],
    )


@pytest.mark.parametrize("name", pa.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pa, name) is not None
    assert name in dir(pa)


def test_an_unknown_name_is_said_to_be_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        _ = pa.serch  # type: ignore[attr-defined]


def test_nothing_public_imports_tensorflow_or_a_solver() -> None:
    code = (
        "import sys, placement_advisor as pa\n"
        "[getattr(pa, name) for name in pa.__all__]\n"
        "heavy = {'tensorflow', 'keras', 'numba', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_step_on_one_device_takes_the_sum_of_its_ops() -> None:
    here = pa.Placement(
        label="here", family="by hand", device_of={"one": "a", "two": "a"}, rationale=""
    )
    assert pa.simulate(chain("one", "two"), here, {"one": 30, "two": 40}, TWO).step_ns == 70


def test_costs_may_differ_by_device() -> None:
    there = pa.Placement(label="there", family="by hand", device_of={"one": "b"}, rationale="")
    costs = {"a": {"one": 30}, "b": {"one": 12}}
    assert pa.simulate(chain("one"), there, costs, TWO).step_ns == 12


def test_independent_ops_go_apart_and_that_is_proved() -> None:
    found = pa.search(APART, {"left": 100, "right": 90}, TWO, effort=0.01)

    assert set(found.placement.device_of.values()) == {"a", "b"}
    assert (found.step_ns, found.lower_bound_ns) == (100, 100)
    assert (found.is_proven, found.stopped_by) == (True, "proof")


def test_a_chain_is_proved_to_stay_together() -> None:
    found = pa.search(chain("one", "two", "three"), dict.fromkeys(["one", "two", "three"], 50), TWO)

    assert len(set(found.placement.device_of.values())) == 1
    assert (found.step_ns, found.lower_bound_ns, found.is_proven) == (150, 150, True)


def test_what_is_pinned_stays_where_it_is() -> None:
    found = pa.search(
        APART, {"left": 100, "right": 90}, TWO, pinned={"left": "b", "right": "b"}, effort=0.01
    )

    assert set(found.placement.device_of.values()) == {"b"}
    assert found.step_ns == 190


def test_ops_of_one_variable_that_are_pinned_apart_are_named() -> None:
    graph = OpGraph(
        [
            op("v", 8, role=Role.VARIABLE)._replace(variable="v"),
            op("read", 8)._replace(variable="v"),
            op("other", 8),
        ],
        [edge("v", "read", 8)],
    )
    with pytest.raises(pa.PlacementError, match=r"'v' is pinned to 'a' and op 'read' to 'b'"):
        pa.search(graph, {"read": 1, "other": 1}, TWO, pinned={"v": "a", "read": "b"})


@pytest.mark.parametrize(
    ("pinned", "message"),
    [
        ({"gone": "a"}, "'gone' is pinned to 'a', but is not in the graph"),
        ({"left": "c"}, "'left' is pinned to 'c'; there are a, b"),
    ],
)
def test_pins_to_nothing_are_named(pinned: dict[str, str], message: str) -> None:
    with pytest.raises(pa.PlacementError, match=message):
        pa.search(APART, {"left": 1, "right": 1}, TWO, pinned=pinned)


def test_an_op_without_a_kernel_anywhere_is_named() -> None:
    graph = OpGraph([op("odd", 8)._replace(device_kinds=frozenset({"TPU"}))], [])
    with pytest.raises(pa.PlacementError, match=r"'odd' \(MatMul\) has kernels for TPU"):
        pa.search(graph, {"odd": 1}, TWO)


def test_an_op_without_a_cost_is_named() -> None:
    with pytest.raises(pa.AdvisorError, match="op 'right' has none on 'a'"):
        pa.lower_bound(APART, {"left": 1}, TWO)


def test_a_cycle_is_named() -> None:
    with pytest.raises(pa.AdvisorError, match="cycle: one → two"):
        OpGraph([op("one", 8), op("two", 8)], [edge("one", "two", 8), edge("two", "one", 8)])


def test_a_bound_without_costs_is_assumed_from_the_figures_of_devices() -> None:
    graph = OpGraph([op("one", 8)._replace(flops=10**9, bytes_accessed=8)], [])
    device = pa.Device(name="a", kind="CPU", peak_flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e9)
    bound = pa.lower_bound(graph, None, pa.Cluster(devices=(device,), links=()))
    assert bound.step_ns == pytest.approx(10**9, rel=0.5)


@cases(25)
@given(placed_steps(max_ops=6))
def test_small_steps_are_solved_as_by_trying_everything(step: PlacedStep) -> None:
    """One device is found and proved best wherever it is, and never claimed wrongly."""
    devices = step.cluster.device_names()
    names = list(step.placement.device_of)
    assume(names)
    simulator = step.simulator()
    groups = list(dict.fromkeys(step.graph.op(n).variable or n for n in names))
    best = min(
        simulator.step_ns(
            pa.Placement(
                label="",
                family="",
                rationale="",
                device_of={n: chosen[groups.index(step.graph.op(n).variable or n)] for n in names},
            )
        )
        for chosen in product(devices, repeat=len(groups))
    )

    found = pa.search(step.graph, step.all_costs(), step.cluster, effort=0.05)

    assert found.lower_bound_ns == best
    assert found.step_ns == best
    assert found.is_proven


def test_the_diamond_is_found_and_bounded() -> None:
    step = diamond()
    found = pa.search(step.graph, price({"src": 50, "left": 80, "right": 100, "sink": 20}), pair())
    assert found.step_ns == found.lower_bound_ns == 250
