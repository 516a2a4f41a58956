"""What tracing one model costs, and what runs within its loops, in a child of the advisor's.

The advisor's own stages run as ever. They are timed from outside, by standing between the tracer
and the functions that it calls.

The op graph holds a loop as one op that costs what its body costs. A profile shows the body's ops
under their own names; here is what each of them is, and the work of one of its runs.
"""

import os
import pickle
import re
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from placement_advisor.graph.op import CALL_KINDS, LOOP_KINDS, Op, Role
from placement_advisor.graph.op_work.work import work_of
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import flat_step, tracer
from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS, Bodies, handed
from placement_advisor.tf.trace.nodes import op_signature

_STAGES = ("traced_function", "flatten", "composites_of", "op_graph")
_BODIES = ("cond", "body", "f", "then_branch", "else_branch", "branches")
_UNCOMPUTED = frozenset({Role.INPUT, Role.CONSTANT, Role.VARIABLE})


def measure(path, size):
    """Trace a model and return the costs and the shares that the graph knows.

    What runs within another call counts twice.
    """
    if size is not None:
        os.environ["SAMPLE_SIZE"] = size
    tracer.load_workload(ModelSource(path=path))
    cpu_s = defaultdict(float)
    traced_bytes = 0

    def timed(label, function):
        def call(*args, **options):
            nonlocal traced_bytes
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                cpu_s[label] += time.process_time() - start
                if label == "traced_function":  # From here on, memory is ours: its peak as well.
                    traced_bytes = _status_bytes("VmRSS")
                    Path("/proc/self/clear_refs").write_text("5")

        return call

    stages = [(tracer, name) for name in _STAGES]
    with ExitStack() as stack:
        for module, name in (*stages, (flat_step.tf_optimizer, "OptimizeGraph")):
            stack.enter_context(patch.object(module, name, timed(name, getattr(module, name))))
        traced = timed("all", tracer.trace_workload)(path, None)
    timed("handing over", pickle.dumps)(traced)
    trace_s, inlining_s = cpu_s["traced_function"], cpu_s.get("OptimizeGraph")
    own = {stage: cpu_s[stage] for stage in _STAGES[1:]}
    own["flatten"] -= inlining_s or 0.0
    own["rest"] = cpu_s["all"] - trace_s - (inlining_s or 0.0) - sum(own.values())
    own["handing over"] = cpu_s["handing over"]
    graph = traced.graph
    computing = [op for op in graph.ops if op.role not in _UNCOMPUTED]
    known = (computing, "layer"), (graph.ops, "layer"), (computing, "flops")
    shares = [sum(getattr(op, field) is not None for op in ops) / len(ops) for ops, field in known]
    return {
        "trace_cpu_s": trace_s,
        "inlining_cpu_s": inlining_s,
        "own_cpu_s": own,
        "on_top_bytes": _status_bytes("VmHWM") - traced_bytes,
        "ops": len(graph),
        "edges": len(graph.edges),
        "shares": (graph.edge_bytes_known_share, *shares),
    }


def _status_bytes(field):
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s*(\d+) kB", status).group(1)) * 1024


def trace_with_loops(path, folder):
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
            op = Op(name=node.name, kind=node.kind, work_basis=work.basis)
            yield op._replace(flops=work.flops, bytes_accessed=work.bytes_accessed)
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
