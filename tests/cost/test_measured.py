import pytest
from placed_steps import pair, place, price

from placement_advisor.cost.measured_costs import (
    UNSEEN_OP_LIMIT_NS,
    dispatch_overhead_ns,
    measured_costs,
    ns_per_byte,
    unseen_op_ns,
    with_members,
)
from placement_advisor.cost.roofline import STAND_IN_CPU
from placement_advisor.cost.table import ASSUMED_WITHIN, CostBasis, CostTable, OpCost
from placement_advisor.errors import TestbedError
from placement_advisor.graph.op import Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Dispatch
from placement_advisor.simulator.simulator import Simulator


def graph_of(*ops):
    return OpGraph([Op(name=name, kind=kind) for name, kind in ops], [])


def test_a_profiled_op_costs_what_the_profile_says_zero_included():
    table = measured_costs(graph_of(("x", "MatMul"), ("y", "Relu")), {"x": 700, "y": 0, "else": 9})
    assert table.costs == price({"x": 700, "y": 0}).costs


def test_an_op_that_the_profile_does_not_show_costs_as_much_as_the_cheapest_kind():
    kinds = {"m": "MatMul", "r": "Relu", "s1": "Shape", "s2": "Shape", "p": "Pack", "x": "Sum"}
    op_ns = {"m": 90_000, "r": 7_000, "s1": 400, "s2": 600, "p": 2_000}
    # Kinds by median: Shape 500, Pack 2000, Relu 7000, MatMul 90000; a quarter of them is Shape.
    costs = measured_costs(graph_of(*kinds.items()), op_ns).costs
    assert costs["x"] == OpCost(time_ns=500, basis=CostBasis.GUESSED)
    # Where the profile shows expensive ops only, the guess stays small.
    graph = graph_of(("m", "MatMul"), ("x", "Shape"))
    assert unseen_op_ns(graph, {"m": 40_000_000}) == UNSEEN_OP_LIMIT_NS


def test_constants_have_no_cost_and_inputs_and_variables_only_a_measured_one():
    roles = {"c": Role.CONSTANT, "v": Role.VARIABLE, "fed": Role.INPUT, "shown": Role.INPUT}
    ops = [Op(name=name, kind="Any", role=role) for name, role in roles.items()]
    ops.append(Op(name="x", kind="MatMul"))
    table = measured_costs(OpGraph(ops, []), {"c": 1, "shown": 3, "x": 700})
    assert set(table.costs) == {"shown", "x"}


def test_a_profile_of_something_else_is_refused():
    with pytest.raises(TestbedError, match="none of the graph's 1 ops"):
        measured_costs(graph_of(("x", "MatMul")), {"y": 700})


def test_the_dispatch_overhead_is_what_the_ops_leave_over_and_never_negative():
    # 900 - 700 = 200 over 4 ops.
    assert dispatch_overhead_ns(in_ops_ns=900, compute_ns=700, op_count=4) == 50
    assert dispatch_overhead_ns(in_ops_ns=9, compute_ns=10, op_count=1) == 0


def test_ops_within_loops_count_for_these_and_those_of_one_name_are_shared_out():
    op_ns = {"x": 7, "body/mul": 40, "body/add": 5, "unread": 3}
    members = {"loop": ["body/mul", "body/add", "unseen"], "other": ["body/mul"]}
    # Half of the 40 ns to each of them.
    assert with_members(op_ns, members) == {"x": 7, "unread": 3, "loop": 20 + 5, "other": 20}


def test_a_byte_costs_what_measured_ops_that_work_by_element_took_for_each_or_what_is_assumed():
    ops = [
        Op(name="relu", kind="Relu", bytes_accessed=400),
        Op(name="add", kind="AddV2", bytes_accessed=600),
        Op(name="unknown", kind="Relu"),
        Op(name="guessed", kind="Relu", bytes_accessed=900),
        Op(name="product", kind="MatMul", bytes_accessed=900),
    ]
    took = {"relu": 100, "add": 150, "unknown": 70, "product": 5_000}
    costs = {name: OpCost(time_ns=ns, basis=CostBasis.MEASURED) for name, ns in took.items()}
    costs["guessed"] = OpCost(time_ns=9_000, basis=CostBasis.GUESSED)
    # 250 ns for 1,000 bytes.
    assert ns_per_byte([(OpGraph(ops, []), CostTable(costs=costs))]) == 0.25

    assert ns_per_byte([]) == 1e9 / (STAND_IN_CPU.memory_bandwidth_bytes_per_s or 0)


def test_with_its_dispatch_overhead_the_simulated_single_step_is_the_measured_one():
    graph = graph_of(("x", "MatMul"), ("y", "Relu"), ("unseen", "Shape"))
    table = measured_costs(graph, {"x": 600, "y": 100})
    overhead_ns = dispatch_overhead_ns(
        in_ops_ns=2_000 - 500, compute_ns=table.total_ns, op_count=len(table.costs)
    )
    step = Dispatch(step_overhead_ns=500)
    cluster = pair(count=1, launch_overhead_ns=overhead_ns, dispatch=step)
    single = place(dict.fromkeys(("x", "y", "unseen"), "a"))
    # Shared out in whole ns, so up to half a ns per op is lost or gained.
    simulator = Simulator(graph, table.everywhere(cluster), cluster)
    assert abs(simulator.step_ns(single) - 2_000) <= len(graph)


def kernel(time_ns, within):
    return OpCost(time_ns=time_ns, basis=CostBasis.KERNEL, within=within)


def test_a_scaled_table_is_known_as_well_as_before_and_has_no_price_of_other_ops():
    table = CostTable(costs={"x": kernel(10, 1.1)})
    assert table.scaled(2.0).costs == {"x": kernel(20, 1.1)}
    with pytest.raises(KeyError, match="x"):
        CostTable(costs={}).time_ns("x")


def test_the_time_of_all_ops_is_within_the_mean_of_their_factors_or_what_is_assumed_by_hand():
    # A third of the time is within 1.1, two thirds are assumed.
    table = CostTable(costs={"x": kernel(100, 1.1), "y": kernel(200, None)})
    assert table.total_within == pytest.approx((1.1 * 2 * 2) ** (1 / 3))
    for costs in ({}, {"x": kernel(100, None)}, {"x": kernel(0, 1.1)}):
        assert CostTable(costs=costs).total_within == pytest.approx(ASSUMED_WITHIN)
