import subprocess
import sys

import pytest
from drawn_cases import cases
from hypothesis import assume, given
from placed_steps import op, pair, place, placed_steps

import placement_advisor as pa
from placement_advisor import Workload
from placement_advisor.graph.op_graph import OpGraph

TWO = pair()
APART = OpGraph([op("left", 8), op("right", 8)], [])


@pytest.mark.parametrize("name", pa.__all__)
def test_every_public_name_is_there(name):
    assert getattr(pa, name) is not None
    assert name in dir(pa)


def test_an_unknown_name_is_said_to_be_unknown():
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        _ = pa.serch


@pytest.mark.parametrize(
    ("use", "heavy"),
    [
        ("[getattr(pa, name) for name in pa.__all__]", "tensorflow keras numba matplotlib"),
        ("pa.Workload(step=print, inputs=())", "tensorflow keras networkx numpy"),
    ],
)
def test_nothing_public_imports_tensorflow_or_a_solver(use, heavy):
    shown = f"print({set(heavy.split())} & sys.modules.keys())"
    code = f"import sys, placement_advisor as pa\n{use}\n{shown}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_public_calls_simulate_and_search_by_hand():
    apart = {"left": 30, "right": 40}
    assert pa.simulate(APART, place(dict.fromkeys(apart, "a")), apart, TWO).step_ns == 70
    costs = {"left": 100, "right": 90}
    found = pa.search(APART, costs, TWO, effort=0.01)

    assert set(found.placement.device_of.values()) == {"a", "b"}
    assert (found.step_ns, found.lower_bound_ns) == (100, 100)
    assert (found.is_proven, found.stopped_by) == (True, "proof")
    found = pa.search(APART, costs, TWO, pinned={"left": "b", "right": "b"}, effort=0.01)

    assert set(found.placement.device_of.values()) == {"b"}
    assert found.step_ns == 190
    with pytest.raises(pa.AdvisorError, match="op 'right' has none on 'a'"):
        pa.search(APART, {"left": 1}, TWO)
    graph = OpGraph([op("one", 8)._replace(flops=10**9, bytes_accessed=8)], [])
    device = pa.Device(name="a", kind="CPU", peak_flops_per_s=1e9, memory_bandwidth_bytes_per_s=1e9)
    found = pa.search(graph, None, pa.Cluster(devices=(device,), links=()), effort=0)
    assert found.lower_bound_ns == pytest.approx(10**9, rel=0.5)


@cases(25)
@given(placed_steps(max_ops=6))
def test_small_steps_are_solved_as_by_trying_everything(step):
    """One device is found and proved best wherever it is, and never claimed wrongly."""
    assume(step.placement.device_of)
    simulator = step.simulator()
    best = min(simulator.step_ns_at(where) for where in step.placements())

    found = pa.search(step.graph, step.all_costs(), step.cluster, effort=0.05)

    assert found.lower_bound_ns == best
    assert found.step_ns == best
    assert found.is_proven


def step(value):
    return value


def test_a_workload_is_training_at_the_size_of_its_inputs_unless_it_says_otherwise():
    workload = Workload(step=step, inputs=(1.0,))
    assert (workload.mode, workload.batch_size) == ("train", None)


@pytest.mark.parametrize(
    ("wrong", "error", "reason"),
    [
        ({"step": 3}, TypeError, "step is a int, not a function"),
        ({"mode": "eval"}, ValueError, "mode is 'eval', not one of 'train', 'infer'"),
        ({"batch_size": 0}, ValueError, "batch_size is 0, not at least 1"),
    ],
)
def test_a_workload_refuses(wrong, error, reason):
    with pytest.raises(error, match=reason):
        Workload(**{"step": step, "inputs": (), **wrong})
