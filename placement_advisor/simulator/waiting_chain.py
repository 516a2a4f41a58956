"""Which ops the end of a simulated step waited for, compiled by numba for searches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.compiled import compiled
from placement_advisor.simulator.event_loop import (
    DELIVERED,
    END,
    READY,
    START,
    TARGET,
    TENSOR,
)

if TYPE_CHECKING:
    from placement_advisor.simulator.event_loop import Indices, Result, Step


@compiled(nogil=True, error_model="numpy")
def chain(step: Step, result: Result) -> Indices:
    """Return the ops that the end of the step waited for one after the other, the last one first.

    An op that started when it was ready waited for the op that made its last input, copies left
    out; one that started later waited for the op before it on its device. One that was launched
    ahead waited for that one as well if it was launched, or ran, later than it could.
    """
    tensor_start, reader_start, reader = step.tensor_start, step.reader_start, step.reader
    device_of, op_ns, crossings = step.device, result.op_ns, result.crossings
    ops, devices = device_of.shape[0], result.last_end_ns.shape[0]

    last_input = np.full(ops, -1, np.int64)
    producer = np.empty(tensor_start[ops], np.int64)
    for op in range(ops):
        told_ns = result.told_ns[op] if step.is_ahead[device_of[op]] else op_ns[op, END]
        for tensor in range(tensor_start[op], tensor_start[op + 1]):
            producer[tensor] = op
            for edge in range(reader_start[tensor], reader_start[tensor + 1]):
                consumer = reader[edge]
                is_here = device_of[consumer] == device_of[op]
                if is_here and op_ns[consumer, READY] == told_ns:
                    last_input[consumer] = op
    for crossing in range(crossings.shape[0]):
        tensor = crossings[crossing, TENSOR]
        for edge in range(reader_start[tensor], reader_start[tensor + 1]):
            consumer = reader[edge]
            is_there = device_of[consumer] == crossings[crossing, TARGET]
            if is_there and op_ns[consumer, READY] == crossings[crossing, DELIVERED]:
                last_input[consumer] = producer[tensor]

    before = np.full(ops, -1, np.int64)
    last_on = np.full(devices, -1, np.int64)
    for op in result.started:
        before[op] = last_on[device_of[op]]
        last_on[device_of[op]] = op

    end = -1
    for device in range(devices):
        op = last_on[device]
        if op >= 0 and (end < 0 or op_ns[op, END] > op_ns[end, END]):
            end = op
    found = np.empty(ops, np.uint32)
    count = 0
    while end >= 0:
        found[count] = end
        count += 1
        taken_ns = op_ns[end, START]
        is_kept = taken_ns > op_ns[end, READY]
        if step.is_ahead[device_of[end]]:
            told_ns = result.told_ns[end]
            is_kept = taken_ns > told_ns or told_ns - step.launch_ns[end] > op_ns[end, READY]
        end = before[end] if is_kept else last_input[end]
    return found[:count]
