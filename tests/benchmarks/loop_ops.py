"""The ops within loops and conditionals, one by one; runs in a child of the advisor's.

The op graph holds a loop as one op that costs what its body costs. A profile shows the body's ops
under their own names; here is what each of them is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from placement_advisor.tf import tracer
from placement_advisor.tf.bodies import COMPOSITE_KINDS, LOOP_KINDS, Bodies
from placement_advisor.tf.constant_values import constant_values
from placement_advisor.tf.signatures import signature_of
from placement_advisor.work.registry import work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from placement_advisor.tf.answers import Traced
    from placement_advisor.tf.flat_step import FlatStep
    from placement_advisor.tf.nodes import Node
    from placement_advisor.work.signature import Work

_CALL_KINDS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOp:
    """One op of a body, the work of one of its runs, and its runs per step (None: unknown)."""

    name: str
    kind: str
    work: Work
    runs: int | None


def trace(path: str, folder: str) -> tuple[Traced, list[LoopOp]]:
    """Trace the loaded workload as ever, and list what runs within its loops."""
    steps: list[FlatStep] = []

    def composites_of(step: FlatStep) -> Any:
        steps.append(step)
        return found(step)

    found = tracer.composites_of
    with patch.object(tracer, "composites_of", composites_of):
        traced = tracer.trace_workload(path, folder)
    return traced, list(_within(steps[0]))


def _within(step: FlatStep) -> Iterator[LoopOp]:
    bodies = Bodies(step.functions, step.traced)
    for name, body in step.loop_bodies.items():
        yield from _ops(bodies, body, step.trips.get(name))
    yield from _inner(bodies, step.ops, 1)


def _ops(bodies: Bodies, nodes: list[Node], runs: int | None) -> Iterator[LoopOp]:
    for node in nodes:
        if node.kind not in COMPOSITE_KINDS | _CALL_KINDS:
            work = work_of(signature_of(node))
            yield LoopOp(name=node.name, kind=node.kind, work=work, runs=runs)
    yield from _inner(bodies, nodes, runs)


def _inner(bodies: Bodies, nodes: Iterable[Node], runs: int | None) -> Iterator[LoopOp]:
    nodes = list(nodes)
    values = constant_values(nodes)
    for node in nodes:
        if node.kind in COMPOSITE_KINDS:
            trips = bodies.composite(node, values).trips if node.kind in LOOP_KINDS else 1
        elif node.kind in _CALL_KINDS:
            trips = 1
        else:
            continue
        times = None if runs is None or trips is None else runs * trips
        for body in _bodies(bodies, node):
            yield from _ops(bodies, body, times)


def _bodies(bodies: Bodies, node: Node) -> Iterator[list[Node]]:
    given = [producer.outputs[port] for producer, port in node.inputs]
    skipped = 0 if node.kind in LOOP_KINDS | _CALL_KINDS else 1  # A conditional's first is which.
    for attribute in ("cond", "body", "f", "then_branch", "else_branch", "branches"):
        names = node.attribute(attribute)
        for name in [names] if isinstance(names, str) else names or []:
            body = bodies._body(name, given[skipped:])
            if body is not None:
                yield body.nodes
