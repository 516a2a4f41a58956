"""The event loop of the simulator is compiled by numba, and so is the walk back from its end.

The rules of the loop are those of `simulator.simulator`. Ops, tensors, devices and links are
indices into the arrays of `Step` and `Wires`. A *crossing* is one tensor on its way to one
device. What a device does ends at ``until``. A device that launches ahead is busy with an op
only while it launches it; the kernel runs by itself, behind those before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.compiled import compiled
from placement_advisor.simulator.arrays import Result, Step, Wires

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Indices = NDArray[np.uint32]
    Flags = NDArray[np.bool_]


_NEVER = 2**62
# What a device does when it runs no op (those are not negative): nothing, or copy work ``k``, which
# is numbered _COPY - k.
_NOTHING = -1
_COPY = -2
# Whose turn it is on a device.
_NOBODY, _OPS, _COPIES = range(3)
# Columns of `Result.op_ns` and `Result.crossings`.
READY, START, END = range(3)
TENSOR, SOURCE, TARGET, SENT, ON_WIRE, ARRIVAL, DELIVERED = range(7)


@compiled(nogil=True, error_model="numpy")
def run(step: Step, wires: Wires, begin_ns: Ints, quantum_ns: int, asleep_ns: int) -> Result:
    """Simulate one step on devices that begin to work at ``begin_ns``.

    One function on purpose: numba spends ten times the work on calls that hand arrays on. Indices
    are unsigned, which saves it the check for negative ones.
    """
    tensor_start, reader_start, reader = step.tensor_start, step.reader_start, step.reader
    size_of, device_of = step.size, step.device
    duration_ns, beside_ns = step.duration_ns, step.beside_ns
    launch_ns, is_ahead = step.launch_ns, step.is_ahead
    kind_of, channel = wires.kind, wires.channel
    latency_ns, request_ns = wires.latency_ns, wires.request_ns
    bytes_ns, wire_ns = wires.bytes_ns, wires.wire_ns
    send_ns, receive_ns, wake_ns = wires.send_ns, wires.receive_ns, wires.wake_ns
    ops, edges, devices = device_of.shape[0], reader.shape[0], begin_ns.shape[0]

    missing = step.missing.copy()
    op_ns = np.zeros((ops, 3), np.int64)
    has_ahead = is_ahead.any()
    told_ns = np.zeros(ops if has_ahead else 0, np.int64)
    started = np.empty(ops, np.uint32)
    started_count = 0
    last_end_ns = np.full(devices, -1, np.int64)

    # What each device does until when; what it does first is to begin.
    until_ns = begin_ns.copy()
    doing = np.full(devices, _NOTHING, np.int64)
    # Ops that are ready: each device has its own stretch of the queue.
    queue = np.empty(ops, np.uint32)
    queue_head = np.zeros(devices + 1, np.int64)
    for op in range(ops):
        queue_head[device_of[op] + 1] += 1
    for device in range(devices):
        queue_head[device + 1] += queue_head[device]
    queue_tail = queue_head.copy()
    # No copies go where no op is.
    in_use = np.flatnonzero(queue_head[1:] > queue_head[:-1])
    for op in range(ops):
        if not missing[op]:
            queue[queue_tail[device_of[op]]] = op
            queue_tail[device_of[op]] += 1

    # What runs on devices that launch ahead, and has tensors to send when it ends.
    draining = np.empty(ops, np.uint32)
    drain_head, drain_tail = queue_head.copy(), queue_head.copy()
    drain_ns = np.full(devices, _NEVER, np.int64)
    kernels_ns = np.zeros(devices, np.int64)

    # Crossings; their number is not known before, but there is a reader for each.
    crossings = np.empty((edges, 7), np.int64)
    count = 0
    # By device, the tensor that set out for it last: a tensor crosses once.
    seen = np.full(devices, -1, np.int64)
    outgoing = np.empty(max(devices, edges), np.int32)
    # Copy work of each device, a linked list: 2 c is to send crossing c, 2 c + 1 to receive it.
    work_next = np.empty(2 * edges, np.int32)
    work_head = np.zeros(devices, np.int64)
    work_tail = np.zeros(devices, np.int64)
    waiting = np.zeros(devices, np.int64)
    # Whether it is the turn of a device's ops or of its copy work, and since when.
    turn = np.full(devices, _NOBODY, np.int64)
    turn_ns = np.zeros(devices, np.int64)
    # How many devices run an op.
    running = 0
    # Since when each device has had nothing to do, if it has.
    idle_ns = np.full(devices, _NEVER, np.int64)
    # Lanes, also linked lists, and the heap of those that are not empty.
    lanes = devices * devices
    lane_head = np.full(lanes, -1, np.int32)
    lane_tail = np.full(lanes, -1, np.int32)
    lane_next = np.empty(edges, np.int32)
    heap_ns = np.empty(lanes, np.int64)
    heap_lane = np.empty(lanes, np.int32)
    heap_count = 0
    channel_free_ns = np.zeros(devices * devices, np.int64)

    while True:
        # The next event: a device ends what it does, or a crossing arrives.
        now = _NEVER
        device = -1
        is_drain = False
        for used in in_use:
            if until_ns[used] < now:
                now = until_ns[used]
                device = int(used)
                is_drain = False
            if has_ahead and drain_ns[used] < now:
                now = drain_ns[used]
                device = int(used)
                is_drain = True
        delivered = -1
        outgoing_count = 0
        if heap_count and heap_ns[0] < now:
            now = heap_ns[0]
            lane = heap_lane[0]
            crossing = lane_head[lane]
            device = crossings[crossing, TARGET]
            lane_head[lane] = lane_next[crossing]
            # The lane goes down the heap to where its next arrival belongs, or out of it.
            if lane_head[lane] >= 0:
                next_ns = crossings[lane_head[lane], ARRIVAL]
            else:
                heap_count -= 1
                next_ns = heap_ns[heap_count]
                lane = heap_lane[heap_count]
            place = 0
            while True:
                below = 2 * place + 1
                if below >= heap_count:
                    break
                other = below + 1
                if other < heap_count and (
                    heap_ns[other] < heap_ns[below]
                    or (heap_ns[other] == heap_ns[below] and heap_lane[other] < heap_lane[below])
                ):
                    below = other
                if next_ns < heap_ns[below] or (
                    next_ns == heap_ns[below] and lane < heap_lane[below]
                ):
                    break
                heap_ns[place] = heap_ns[below]
                heap_lane[place] = heap_lane[below]
                place = below
            heap_ns[place] = next_ns
            heap_lane[place] = lane
            kind = kind_of[crossings[crossing, SOURCE] * devices + device]
            if receive_ns[kind, size_of[crossings[crossing, TENSOR]]]:
                if waiting[device]:
                    work_next[work_tail[device]] = 2 * crossing + 1
                else:
                    work_head[device] = 2 * crossing + 1
                work_tail[device] = 2 * crossing + 1
                waiting[device] += 1
            else:
                delivered = crossing
        elif device < 0:
            break
        elif is_drain or doing[device] >= 0:
            if is_drain:
                op = int(draining[drain_head[device]])
                drain_head[device] += 1
                drain_ns[device] = _NEVER
                if drain_head[device] < drain_tail[device]:
                    drain_ns[device] = op_ns[draining[drain_head[device]], END]
            else:
                op = doing[device]
                until_ns[device] = _NEVER
                last_end_ns[device] = now
                if is_ahead[device]:
                    op_ns[op, START] = max(now, kernels_ns[device])
                    kernels_ns[device] = op_ns[op, START] + duration_ns[op]
                    last_end_ns[device] = kernels_ns[device]
                    told_ns[op] = now
                else:
                    running -= 1
                op_ns[op, END] = last_end_ns[device]
            sends_now = is_drain or not is_ahead[device]
            sends_later = False
            for tensor in range(tensor_start[op], tensor_start[op + 1]):
                for edge in range(reader_start[tensor], reader_start[tensor + 1]):
                    consumer = reader[edge]
                    target = device_of[consumer]
                    if target == device:
                        if is_drain:
                            continue
                        missing[consumer] -= 1
                        if not missing[consumer]:
                            op_ns[consumer, READY] = now
                            queue[queue_tail[device]] = consumer
                            queue_tail[device] += 1
                    elif not sends_now:
                        sends_later = True
                    elif seen[target] != tensor:
                        seen[target] = tensor
                        crossings[count, TENSOR] = tensor
                        crossings[count, SOURCE] = device
                        crossings[count, TARGET] = target
                        if send_ns[kind_of[device * devices + target], size_of[tensor]]:
                            if waiting[device]:
                                work_next[work_tail[device]] = 2 * count
                            else:
                                work_head[device] = 2 * count
                            work_tail[device] = 2 * count
                            waiting[device] += 1
                        else:
                            outgoing[outgoing_count] = count
                            outgoing_count += 1
                        count += 1
            if sends_later:
                if drain_head[device] == drain_tail[device]:
                    drain_ns[device] = op_ns[op, END]
                draining[drain_tail[device]] = op
                drain_tail[device] += 1
        else:
            until_ns[device] = _NEVER
            if doing[device] <= _COPY and (_COPY - doing[device]) & 1:
                delivered = (_COPY - doing[device]) >> 1

        if delivered >= 0:
            crossings[delivered, DELIVERED] = now
            tensor = crossings[delivered, TENSOR]
            for edge in range(reader_start[tensor], reader_start[tensor + 1]):
                consumer = reader[edge]
                if device_of[consumer] == device:
                    missing[consumer] -= 1
                    if not missing[consumer]:
                        op_ns[consumer, READY] = now
                        queue[queue_tail[device]] = consumer
                        queue_tail[device] += 1

        # Give the device something to do.
        if until_ns[device] == _NEVER:
            has_ops = queue_head[device] < queue_tail[device]
            has_copies = waiting[device] > 0
            whose = _OPS if has_ops else _COPIES if has_copies else _NOBODY
            if has_ops and has_copies and turn[device] != _NOBODY:
                whose = turn[device]
                if now - turn_ns[device] >= quantum_ns:
                    whose = _OPS if whose == _COPIES else _COPIES
            if whose != turn[device]:
                turn[device] = whose
                turn_ns[device] = now
            if whose == _COPIES:
                work = work_head[device]
                work_head[device] = work_next[work]
                waiting[device] -= 1
                doing[device] = _COPY - work
                crossing = work >> 1
                kind = kind_of[crossings[crossing, SOURCE] * devices + crossings[crossing, TARGET]]
                size = size_of[crossings[crossing, TENSOR]]
                if work & 1:
                    until_ns[device] = now + receive_ns[kind, size]
                    if now - idle_ns[device] >= asleep_ns:
                        until_ns[device] += wake_ns[kind]
                    elif idle_ns[device] != _NEVER:
                        rest = (now - idle_ns[device]) / asleep_ns
                        until_ns[device] += np.int64(wake_ns[kind] * rest)
                else:
                    until_ns[device] = now + send_ns[kind, size]
                    outgoing[outgoing_count] = crossing
                    outgoing_count += 1
                idle_ns[device] = _NEVER
            elif whose == _OPS:
                op = queue[queue_head[device]]
                queue_head[device] += 1
                doing[device] = op
                if is_ahead[device]:
                    until_ns[device] = now + launch_ns[op]
                else:
                    until_ns[device] = now + (beside_ns[op] if running else duration_ns[op])
                    running += 1
                    op_ns[op, START] = now
                idle_ns[device] = _NEVER
                started[started_count] = op
                started_count += 1
            else:
                idle_ns[device] = min(idle_ns[device], now)

        # Put on their wires what sets out.
        for i in range(outgoing_count):
            crossing = outgoing[i]
            link = crossings[crossing, SOURCE] * devices + crossings[crossing, TARGET]
            kind, size = kind_of[link], size_of[crossings[crossing, TENSOR]]
            begin = now
            if request_ns[kind]:
                begin = max(now, begin_ns[crossings[crossing, TARGET]] + request_ns[kind])
            begin = max(begin, channel_free_ns[channel[link]])
            channel_free_ns[channel[link]] = begin + wire_ns[kind, size]
            # Work at the ends is part of the copy's time; what is left of it lies before receiving.
            whole_ns = max(latency_ns[kind] + bytes_ns[kind, size], send_ns[kind, size])
            crossings[crossing, SENT] = now
            crossings[crossing, ON_WIRE] = begin
            arrival = begin + max(whole_ns - receive_ns[kind, size], 0)
            lane = link
            lane_next[crossing] = -1
            if lane_head[lane] >= 0:
                # What is in a lane stays in order.
                arrival = max(arrival, crossings[lane_tail[lane], ARRIVAL])
                lane_next[lane_tail[lane]] = crossing
            else:
                lane_head[lane] = crossing
                place = heap_count
                heap_count += 1
                while place:
                    above = (place - 1) >> 1
                    if heap_ns[above] < arrival or (
                        heap_ns[above] == arrival and heap_lane[above] < lane
                    ):
                        break
                    heap_ns[place] = heap_ns[above]
                    heap_lane[place] = heap_lane[above]
                    place = above
                heap_ns[place] = arrival
                heap_lane[place] = lane
            lane_tail[lane] = crossing
            crossings[crossing, ARRIVAL] = arrival

    return Result(op_ns, told_ns, started[:started_count], crossings[:count], last_end_ns)


@compiled(nogil=True, error_model="numpy")
def beside_kernels_ns(step: Step, result: Result, moves_bytes: Flags, is_joint: Flags) -> int:
    """Return how long kernels run beside exchanges, on the device that ends last of those ahead.

    These are copies from and to it, from when they are sent, of tensors that ``moves_bytes`` says,
    and collectives: ops of places of which ``is_joint`` is true, from when they are ready.
    """
    crossings, op_ns, device_of = result.crossings, result.op_ns, step.device
    copies, ops = crossings.shape[0], device_of.shape[0]
    last = 0
    for device in range(step.is_ahead.shape[0]):
        if step.is_ahead[device] and (
            not step.is_ahead[last] or result.last_end_ns[device] >= result.last_end_ns[last]
        ):
            last = device
    begin_ns, end_ns = np.empty((2, copies + ops), np.int64)
    count = 0
    for i in range(copies):
        source, target = crossings[i, SOURCE], crossings[i, TARGET]
        if (
            moves_bytes[crossings[i, TENSOR]]
            and (source == last or target == last)
            and not (is_joint[source] or is_joint[target])
        ):
            begin_ns[count], end_ns[count] = crossings[i, SENT], crossings[i, DELIVERED]
            count += 1
    for op in range(ops):
        if is_joint[device_of[op]]:
            begin_ns[count], end_ns[count] = op_ns[op, READY], op_ns[op, END]
            count += 1
    kernels = np.empty(ops, np.uint32)
    launched = 0
    for op in result.started:
        if device_of[op] == last:
            kernels[launched] = op
            launched += 1
    beside_ns = first = until_ns = 0
    for i in np.argsort(begin_ns[:count]):
        since_ns, until_ns = max(begin_ns[i], until_ns), max(end_ns[i], until_ns)
        while first < launched and op_ns[kernels[first], END] <= since_ns:
            first += 1
        k = first
        while k < launched and op_ns[kernels[k], START] < until_ns:
            start_ns = max(op_ns[kernels[k], START], since_ns)
            beside_ns += max(min(op_ns[kernels[k], END], until_ns) - start_ns, 0)
            k += 1
    return beside_ns


@compiled(nogil=True, error_model="numpy")
def waiting_chain(step: Step, result: Result) -> Indices:
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
