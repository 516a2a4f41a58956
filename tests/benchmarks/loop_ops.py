"""The ops within loops and conditionals, one by one; runs in a child of the advisor's.

The op graph holds a loop as one op that costs what its body costs. A profile shows the body's ops
under their own names; here is what each of them is, and the work of one of its runs.
"""

from unittest.mock import patch

from placement_advisor.graph.op import CALL_KINDS, LOOP_KINDS, Op
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.tf.trace import tracer
from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS, Bodies, handed
from placement_advisor.tf.trace.nodes import op_signature

_BODIES = ("cond", "body", "f", "then_branch", "else_branch", "branches")


def trace(path, folder):
    """Trace the loaded workload as ever, and list what runs within its loops."""
    steps = []

    def composites_of(step):
        steps.append(step)
        return found(step)

    found = tracer.composites_of
    with patch.object(tracer, "composites_of", composites_of):
        traced = tracer.trace_workload(path, folder)
    step = steps[0]
    bodies = Bodies(step.functions, step.traced)
    within = [op for body in step.loop_bodies.values() for op in _ops(bodies, body)]
    return traced, [*within, *_inner(bodies, step.ops)]


def _ops(bodies, nodes):
    for node in nodes:
        if node.kind not in COMPOSITE_KINDS | CALL_KINDS:
            work = work_of(op_signature(node))
            yield Op(
                name=node.name,
                kind=node.kind,
                flops=work.flops,
                bytes_accessed=work.bytes_accessed,
                work_basis=work.basis,
            )
    yield from _inner(bodies, nodes)


def _inner(bodies, nodes):
    for node in nodes:
        if node.kind not in COMPOSITE_KINDS | CALL_KINDS:
            continue
        # A conditional's first input says which branch.
        inputs = node.inputs if node.kind in LOOP_KINDS | CALL_KINDS else node.inputs[1:]
        for attribute in _BODIES:
            names = node.attribute(attribute)
            for name in [names] if isinstance(names, str) else names or []:
                body = bodies.body(name, *handed(inputs, {}))
                if body is not None:
                    yield from _ops(bodies, body.nodes)
