"""Steps that do not end: their time limit, and the ops that may be waiting.

Left out: what ops of loops and conditionals wait for, which the op graph does not have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.op import LOOP_KINDS, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    from placement_advisor.graph.op_graph import OpGraph


# Ops that take what another thread, process or step gives, and wait until it does; ops that give
# wait where there is no room.
_WAITING = re.compile(
    r"Queue(De|En)queue(Many|UpTo)?(V2)?|Reader(Read|ReadUpTo)(V2)?|BarrierTakeMany"
    r"|Stage|StagePeek|Unstage|(Ordered)?Map(Stage|Peek|Unstage(NoKey)?)"
    r"|(Resource|Sparse)?AccumulatorTakeGradient|(In|Out)feed(De|En)queue(Tuple)?"
    r"|(Multi)?(Iterator|DeviceIterator|DeviceMultiDeviceIterator)GetNext\w*"
    r"|Collective(Reduce|Gather|Bcast|Permute|AllToAll)\w*|(Eager)?PyFunc(Stateless)?|MutexLock"
)
# A step within these is one on a slow device, not one that waits. Judgement: a core of ten years
# ago is a hundred times as fast, and takes a hundredth of that to begin an op or a session.
_SLOWEST_FLOPS_PER_S = _SLOWEST_BYTES_PER_S = 100_000_000
_SLOWEST_OP_S = 0.001
_LEAST_LIMIT_S = 30.0
_MOST_NAMED = 3
# Whoever waits for a call that runs a step waits for longer.
MOST_LIMIT_S = 240.0


def step_limit_s(graph: OpGraph) -> float:
    """Return how long a run of a step may take at most, by its ops and their work, in seconds.

    It is `MOST_LIMIT_S` where a loop has work that is not known.
    """
    if any(op.kind in LOOP_KINDS and op.flops is None for op in graph.ops):
        return MOST_LIMIT_S
    takes_s = (
        sum(op.flops or 0 for op in graph.ops) / _SLOWEST_FLOPS_PER_S
        + sum(op.bytes_accessed or 0 for op in graph.ops) / _SLOWEST_BYTES_PER_S
        + len(graph) * _SLOWEST_OP_S
    )
    return min(_LEAST_LIMIT_S + takes_s, MOST_LIMIT_S)


def what_waits(graph: OpGraph) -> str:
    """Return what a step that does not end waits for, as a clause, told by the kinds of its ops.

    Of several that may wait those are named that come after no other one: what comes after one
    has not begun.
    """
    waiting = _first(graph, lambda op: _WAITING.fullmatch(op.kind) is not None)
    if len(waiting) == 1:
        return f"op {waiting[0]} waits for what nothing gives it"
    if waiting:
        named = first_names(waiting, _MOST_NAMED)
        return f"one of these ops waits for what nothing gives it: {named}"
    loops = _first(graph, lambda op: op.kind in LOOP_KINDS)
    if loops:
        return f"it has loops, which may not end: {first_names(loops, _MOST_NAMED)}"
    return "none of its ops is of a kind that waits"


def _first(graph: OpGraph, is_one: Callable[[Op], bool]) -> list[str]:
    """Return the ops that are such and come after no other, by name and kind."""
    behind: set[str] = set()
    found = []
    for op in graph.ops:
        is_behind = any(edge.producer in behind for edge in graph.inputs_of(op.name))
        if is_one(op) and not is_behind:
            found.append(f"{op.name!r} ({op.kind})")
        if is_behind or is_one(op):
            behind.add(op.name)
    return found
