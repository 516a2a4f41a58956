"""Which variables of a mirrored step are updated without what other replicas computed."""

from __future__ import annotations

from placement_advisor.tf.trace.nodes import Node
from placement_advisor.tf.watched_step import unexchanged


def step(*lines: str) -> list[Node]:
    """Make nodes of lines like ``sum = AddN a b``; ``b:1`` is b's second tensor."""
    nodes: dict[str, Node] = {}
    for line in lines:
        name, _, kind, *inputs = line.split()
        nodes[name] = Node(name, kind)
        tensors = [each.partition(":") for each in inputs]
        nodes[name].inputs = [(nodes[producer], int(port or 0)) for producer, _, port in tensors]
    return list(nodes.values())


def alone(*lines: str, replicas: int = 2) -> tuple[str, ...]:
    nodes = step(*lines)
    samples = {node.name: int(node.name[-1]) for node in nodes if node.kind == "Placeholder"}
    handles = {node.name: node.name[0] for node in nodes if node.kind == "VarHandleOp"}
    return unexchanged(nodes, samples, handles, replicas)


W = ("w0 = VarHandleOp", "x0 = Placeholder", "old = ReadVariableOp w0", "g = Mul x0 old")


def test_an_update_from_own_samples_alone_is_found():
    assert alone(*W, "set = AssignSubVariableOp w0 g") == ("w",)


def test_what_went_through_a_collective_comes_from_all():
    assert alone(*W, "r = CollectiveReduceV2 g", "set = AssignSubVariableOp w0 r") == ()


def test_within_a_process_a_sum_over_replicas_comes_from_all():
    both = (*W, "w1 = VarHandleOp", "x1 = Placeholder", "h = Neg x1", "sum = AddN g h")
    assert alone(*both, "a = AssignSubVariableOp w0 sum", "b = AssignSubVariableOp w1 sum") == ()
    assert alone(*both, "a = AssignSubVariableOp w0 g", "b = AssignSubVariableOp w1 h") == ("w",)
    assert alone(*both, "a = AssignSubVariableOp w0 sum", replicas=3) == ("w",)


def test_a_slot_hands_on_where_it_was_made_from():
    slot = ("m0 = VarHandleOp", "keep = AssignAddVariableOp m0 g", "mean = ReadVariableOp m0")
    assert alone(*W, *slot, "set = AssignSubVariableOp w0 mean") == ("m", "w")


def test_counters_and_sizes_come_from_no_samples():
    counter = ("one = Const", "n0 = VarHandleOp", "count = AssignAddVariableOp n0 one")
    assert alone(*W, *counter) == ()
    assert alone(*W, "size = Shape x0", "set = AssignAddVariableOp w0 size") == ()


def test_nothing_is_said_of_what_calls_exchange_within():
    assert alone(*W, "c = StatefulPartitionedCall g", "set = AssignSubVariableOp w0 c") == ()


def test_an_update_of_own_samples_is_found_beside_weights_that_are_exchanged():
    exchanged = (*W, "r = CollectiveReduceV2 g", "set = AssignSubVariableOp w0 r")
    own = ("m0 = VarHandleOp", "now = ReadVariableOp w0", "h = Mul x0 now")
    assert alone(*exchanged, *own, "keep = AssignSubVariableOp m0 h") == ("m",)
    same = ("again = Neg now", "keep = AssignSubVariableOp m0 again")
    assert alone(*exchanged, *own, *same) == ()


def test_tensors_that_one_op_hands_on_stay_apart():
    both = (*W, "r = CollectiveReduceV2 g", "n = IdentityN r g")
    assert alone(*both, "set = AssignSubVariableOp w0 n") == ()
    assert alone(*both, "set = AssignSubVariableOp w0 n:1") == ("w",)
