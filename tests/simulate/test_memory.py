from __future__ import annotations

from hypothesis import given
from placed_steps import PlacedStep, edge, op, pair, place, placed_steps, price

from placement_advisor.graph import Edge, Op, OpGraph, Role


def step_of(ops: list[Op], edges: list[Edge], **device_of: str) -> PlacedStep:
    placed = {o.name: device_of.get(o.name, "a") for o in ops if o.role is not Role.CONSTANT}
    return PlacedStep(
        graph=OpGraph(ops, edges),
        placement=place(placed),
        costs=price(dict.fromkeys(placed, 10)),
        cluster=pair(),
    )


def test_a_chain_holds_two_neighbours_at_a_time() -> None:
    step = step_of(
        [op("x", 100), op("y", 30), op("z", 50)], [edge("x", "y", 100), edge("y", "z", 30)]
    )
    # x is alive until y has ended, so 100 + 30; then 30 + 50.
    assert step.simulate().peak_memory_bytes == {"a": 130, "b": 0}


def test_a_tensor_lives_until_its_last_reader_has_ended() -> None:
    step = step_of(
        [op("x", 100), op("y", 30), op("z", 50), op("w", 7)],
        [edge("x", "y", 100), edge("y", "z", 30), edge("z", "w", 50), edge("x", "w", 100)],
    )
    assert step.simulate().peak_memory_bytes["a"] == 100 + 30 + 50


def test_a_transfer_is_held_at_both_ends() -> None:
    step = step_of([op("x", 100), op("y", 30)], [edge("x", "y", 100)], y="b")
    assert step.simulate().peak_memory_bytes == {"a": 100, "b": 100 + 30}


def test_variables_and_constants_stay_and_reading_a_variable_adds_nothing() -> None:
    step = step_of(
        [
            Op(
                name="v",
                kind="VarHandleOp",
                role=Role.VARIABLE,
                variable="v",
                output_bytes=(None,),
                parameter_bytes=1_000,
            ),
            op("c", 5, role=Role.CONSTANT),
            Op(name="read", kind="ReadVariableOp", variable="v", output_bytes=(1_000,)),
            op("x", 30),
        ],
        [edge("v", "read", None), edge("read", "x", 1_000), edge("c", "x", 5)],
    )
    assert step.simulate().peak_memory_bytes == {"a": 1_000 + 5 + 30, "b": 0}


def test_a_copy_of_a_variable_takes_memory_where_it_arrives() -> None:
    step = step_of(
        [
            Op(
                name="v",
                kind="VarHandleOp",
                role=Role.VARIABLE,
                variable="v",
                parameter_bytes=1_000,
            ),
            Op(name="read", kind="ReadVariableOp", variable="v", output_bytes=(1_000,)),
            op("x", 30),
        ],
        [edge("v", "read", None), edge("read", "x", 1_000)],
        x="b",
    )
    assert step.simulate().peak_memory_bytes == {"a": 1_000, "b": 1_000 + 30}


def test_a_reshape_shares_the_buffer_of_its_input_and_keeps_it_alive() -> None:
    step = step_of(
        [op("x", 100), op("shape", 8), op("flat", 100, kind="Reshape"), op("y", 30), op("z", 50)],
        [
            edge("x", "flat", 100),
            edge("shape", "flat", 8),
            edge("flat", "y", 100),
            edge("y", "z", 30),
            edge("flat", "z", 100),
        ],
    )
    # When z ends: x's buffer, held by flat; y; z.
    assert step.simulate().peak_memory_bytes["a"] == 100 + 30 + 50


def test_tensors_of_unknown_size_are_left_out() -> None:
    step = step_of([op("x", None, 40), op("y", 2)], [edge("x", "y", None)])
    assert step.simulate().peak_memory_bytes["a"] == 40


@given(placed_steps())
def test_the_peak_is_at_least_each_single_tensor_and_at_most_all_of_them(step: PlacedStep) -> None:
    schedule = step.simulate()
    resident = dict.fromkeys(step.cluster.device_names(), 0)
    made = dict(resident)
    largest = dict(resident)
    for op_ in step.graph.ops:
        known = [size for size in op_.output_bytes if size is not None]
        if op_.role is Role.CONSTANT:
            for device in resident:
                made[device] += sum(known)
            continue
        device = step.placement.device_of[op_.name]
        resident[device] += op_.parameter_bytes
        made[device] += op_.parameter_bytes + sum(known)
        if op_.kind == "MatMul" and op_.role is not Role.VARIABLE:
            largest[device] = max([largest[device], *known])
    for transfer in schedule.transfers:
        made[transfer.target] += transfer.size_bytes
    for device, peak_bytes in schedule.peak_memory_bytes.items():
        assert resident[device] + largest[device] <= peak_bytes <= made[device]
