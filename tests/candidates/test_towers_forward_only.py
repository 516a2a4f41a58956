from drawn_cases import cases
from hypothesis import given
from step_graphs import Call, deepconn, models, proposed, training_step

from placement_advisor.candidates.by_layer import NotApplicable
from placement_advisor.candidates.towers import propose_towers, propose_towers_forward_only
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.graph.placement import Placement


def both(calls):
    graph, costs = training_step(calls)
    return graph, *(
        proposed(propose, graph, costs, "d0", "d1")
        for propose in (propose_towers, propose_towers_forward_only)
    )


def test_the_backward_pass_of_the_second_tower_stays_on_the_first_device():
    graph, split, found = both(deepconn())
    changed = {name for name, d in found.device_of.items() if d != split.device_of[name]}
    # Of each of three variables: the sum of its gradient, its momentum's change and its step.
    assert changed == {
        *(f"grad/user_{layer}" for layer in ("conv", "pool", "flat", "dense")),
        *(
            f"user_{variable}/{op}"
            for variable in ("kernel", "bias", "weights")
            for op in ("total", "change", "delta")
        ),
    }
    assert {found.device_of[name] for name in changed} == {"d0"}
    # Half of what its layers cost is in their gradients.
    assert found.rationale == (
        "towers by `with tf.device`: 13 ops of the backward pass and the optimizer (2.65 µs) stay "
        "on d0, whatever the forward pass says"
    )
    found.check(graph, ("d0", "d1"))


def test_a_step_without_a_backward_pass_has_nothing_to_leave_behind():
    graph, costs = training_step(deepconn())
    kept = [op for op in graph.ops if op.role is not Role.BACKWARD]
    names = {op.name for op in kept}
    edges = [e for e in graph.edges if {e.producer, e.consumer} <= names]
    found = proposed(propose_towers_forward_only, OpGraph(kept, edges), costs, "d0", "d1")
    assert found == NotApplicable(
        family="towers-forward-only", reason="the step has no backward pass"
    )


def test_without_towers_it_gives_their_reason():
    _, split, found = both([Call(name="a", feeds=("in:x",)), Call(name="b", feeds=("a",))])
    assert found.reason == f"as for towers: {split.reason}"


@cases(60)
@given(models())
def test_forward_ops_and_all_that_takes_a_variable_stand_as_in_towers(calls):
    graph, split, found = both(calls)
    assert isinstance(found, Placement) == isinstance(split, Placement)
    if isinstance(found, Placement):
        for name, device in found.device_of.items():
            op = graph.op(name)
            computed = op.role in (Role.BACKWARD, Role.UPDATE) and op.variable is None
            assert device == ("d0" if computed else split.device_of[name])
