"""A forecast for tests: a root that eight ops read, each with 7 ns of work to send to."""

from placed_steps import HALF_EACH, edge, op, pair, price

from placement_advisor.analysis.predictions import predict, propose_all
from placement_advisor.analysis.step_costs import AllCosts
from placement_advisor.analysis.target_costs import StepCosts
from placement_advisor.cost.table import CostSource
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.simulator.sensitivity import CostUncertainty
from placement_advisor.solvers.effort import Effort

DOUBT = CostUncertainty(copies=1.5, launches=1.5, ops=1.1)
EFFORT = Effort(units=0.01)


def forecast(*, op_ns, doubt=DOUBT):
    names = [f"op{i}" for i in range(8)]
    graph = OpGraph(
        [op("root", *[4] * 8), *(op(name, 4) for name in names)],
        [edge("root", name, 4, port=i) for i, name in enumerate(names)],
    )
    cluster = pair(latency_ns=20, work=HALF_EACH)
    costs = price({"root": 10, **dict.fromkeys(names, op_ns)}).everywhere(cluster)
    prices = StepCosts(cluster=cluster, costs=costs, source=CostSource.ASSUMED, doubt=doubt)
    priced = AllCosts(prices=prices, splits={})
    return predict(propose_all(graph, priced, ("single", "alternating-ops"), EFFORT))
