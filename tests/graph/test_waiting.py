"""How long a step may take, and what one waits for that does not end."""

from __future__ import annotations

import pytest
from op_graphs import edge

from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.step_limit import MOST_LIMIT_S, step_limit_s, what_waits
from placement_advisor.testbed.testbed import CALL_LIMIT_S


def op(name: str, kind: str, *, flops: int | None = 0, moved_bytes: int | None = 0) -> Op:
    return Op(name=name, kind=kind, flops=flops, bytes_accessed=moved_bytes, output_bytes=(8,) * 2)


def test_a_limit_is_half_a_minute_and_what_a_very_slow_device_takes() -> None:
    # 500 and 250 million at 100 million a second, and three ops at a millisecond each.
    ops = [op("a", "MatMul", flops=500_000_000), op("b", "Add", moved_bytes=250_000_000)]
    assert step_limit_s(OpGraph([*ops, op("c", "Own", flops=None)], [])) == pytest.approx(37.503)


@pytest.mark.parametrize(
    "most", [op("a", "MatMul", flops=10**15), op("a", "While", flops=None, moved_bytes=None)]
)
def test_a_large_step_and_a_loop_of_unknown_work_have_the_longest_limit(most: Op) -> None:
    assert step_limit_s(OpGraph([op("b", "Add"), most], [])) == MOST_LIMIT_S


def test_a_step_ends_by_its_own_limit_before_whoever_called_for_it_gives_up() -> None:
    assert MOST_LIMIT_S < CALL_LIMIT_S


@pytest.mark.parametrize(
    "kind",
    [
        *("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpTo", "QueueEnqueueV2"),
        *("BarrierTakeMany", "Unstage", "StagePeek", "MapUnstageNoKey", "OrderedMapPeek"),
        *("IteratorGetNext", "IteratorGetNextSync", "PyFunc", "EagerPyFunc", "ReaderReadV2"),
        *("ResourceAccumulatorTakeGradient", "CollectiveReduceV2", "MutexLock"),
    ],
)
def test_an_op_that_waits_is_named_with_its_kind(kind: str) -> None:
    graph = OpGraph([op("a", kind), op("b", "QueueSizeV2")], [edge("a", "b")])
    assert what_waits(graph) == f"op 'a' ({kind}) waits for what nothing gives it"


def test_what_comes_after_an_op_that_waits_is_not_named() -> None:
    kinds = {"a": "QueueDequeueV2", "b": "Add", "c": "QueueEnqueueV2", "d": "Unstage"}
    ops = [op(name, kind) for name, kind in kinds.items()]
    graph = OpGraph(ops, [edge("a", "b"), edge("b", "c")])
    assert what_waits(graph) == (
        "one of these ops waits for what nothing gives it: 'a' (QueueDequeueV2), 'd' (Unstage)"
    )


def test_without_such_ops_loops_are_named_and_without_loops_none() -> None:
    loop = OpGraph([op("a", "QueueCloseV2"), op("b", "While")], [])
    assert what_waits(loop) == "it has loops, which may not end: 'b' (While)"
    assert what_waits(OpGraph([op("a", "QueueCloseV2")], [])) == (
        "none of its ops is of a kind that waits"
    )
