from __future__ import annotations

import pytest
from kind_fits import KindFit, fit_by_kind, leading

from placement_advisor.cost.table import CostBasis, CostTable, OpCost
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph


def table(basis: CostBasis, **times_ns: int) -> CostTable:
    return CostTable(
        costs={name: OpCost(time_ns=time, basis=basis) for name, time in times_ns.items()}
    )


GRAPH = OpGraph(
    [
        Op(name="a", kind="MatMul"),
        Op(name="b", kind="MatMul"),
        Op(name="c", kind="Relu"),
        Op(name="d", kind="Log"),
    ],
    [],
)


def test_a_kind_is_off_by_its_predicted_time_over_its_measured_time_by_hand() -> None:
    # MatMul: 30 + 50 and twice the overhead of 10, against 60 + 140; Relu: 5 + 10 against 50.
    predicted = table(CostBasis.ROOFLINE, a=30, b=50, c=5)
    measured = table(CostBasis.MEASURED, a=60, b=140, c=50)
    matmul, relu = fit_by_kind(GRAPH, predicted, measured, launch_overhead_ns=10)
    assert matmul == KindFit(kind="MatMul", ops=2, measured_ns=200, predicted_ns=100, share=0.8)
    assert relu == KindFit(kind="Relu", ops=1, measured_ns=50, predicted_ns=15, share=0.2)
    assert (matmul.ratio, relu.ratio) == (0.5, 0.3)
    assert matmul.is_within(2)
    assert not relu.is_within(2)


def test_an_op_that_was_not_measured_is_left_out() -> None:
    predicted = table(CostBasis.ROOFLINE, a=30, d=50)
    measured = table(CostBasis.MEASURED, a=60, b=60)
    (matmul,) = fit_by_kind(GRAPH, predicted, measured, launch_overhead_ns=0)
    assert (matmul.ops, matmul.measured_ns) == (1, 60)


def test_nothing_measured_is_not_a_fit() -> None:
    both = table(CostBasis.MEASURED, a=0)
    (matmul,) = fit_by_kind(GRAPH, both, both, launch_overhead_ns=0)
    assert matmul.ratio is None
    assert not matmul.is_within(2)


@pytest.mark.parametrize(
    ("share", "kinds"), [(0.7, ["A"]), (0.75, ["A", "B"]), (1.0, ["A", "B", "C"])]
)
def test_the_leading_kinds_cover_the_share_asked_for(share: float, kinds: list[str]) -> None:
    fits = [
        KindFit(kind=kind, ops=1, measured_ns=time, predicted_ns=time, share=time / 100)
        for kind, time in (("A", 70), ("B", 20), ("C", 10))
    ]
    assert [fit.kind for fit in leading(fits, share)] == kinds
