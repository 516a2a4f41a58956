"""What tracing one model costs; runs in a child of the advisor's.

The advisor's own stages run as ever. They are timed from outside, by standing between the tracer
and the functions that it calls.
"""

import os
import pickle
import re
import time
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

from placement_advisor.graph.op import Role
from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import flat_step, tracer

_OWN_STAGES = ("flatten", "composites_of", "op_graph")
_UNCOMPUTED = frozenset({Role.INPUT, Role.CONSTANT, Role.VARIABLE})


class _Meter:
    """CPU time and memory of calls, by label; what runs within another call counts twice."""

    def __init__(self):
        self.cpu_s = defaultdict(float)
        self.resident_bytes = {}

    def timed(self, label, function):
        def call(*args, **options):
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                self.cpu_s[label] += time.process_time() - start
                self.resident_bytes[label] = _status_bytes("VmRSS")
                if label == "trace":  # From here on, memory is ours.
                    _reset_peak()

        return call


def measure(path, size):
    """Trace a model and return the costs and the shares that the graph knows."""
    if size is not None:
        os.environ["SAMPLE_SIZE"] = size
    tracer.load_workload(ModelSource(path=path))
    meter = _Meter()
    before = _status_bytes("VmRSS")
    pass_ = flat_step.tf_optimizer
    with (
        patch.object(tracer, "traced_function", meter.timed("trace", tracer.traced_function)),
        patch.object(pass_, "OptimizeGraph", meter.timed("inlining", pass_.OptimizeGraph)),
        patch.object(tracer, "flatten", meter.timed("flatten", tracer.flatten)),
        patch.object(tracer, "composites_of", meter.timed("composites_of", tracer.composites_of)),
        patch.object(tracer, "op_graph", meter.timed("op_graph", tracer.op_graph)),
    ):
        traced = meter.timed("all", tracer.trace_workload)(path, None)
    meter.timed("handing over", pickle.dumps)(traced)
    cpu_s = meter.cpu_s
    own = {stage: cpu_s[stage] for stage in _OWN_STAGES}
    own["flatten"] -= cpu_s["inlining"]
    own["rest"] = cpu_s["all"] - cpu_s["trace"] - cpu_s["inlining"] - sum(own.values())
    own["handing over"] = cpu_s["handing over"]
    return {
        "trace_cpu_s": cpu_s["trace"],
        "inlining_cpu_s": cpu_s["inlining"] if "inlining" in meter.resident_bytes else None,
        "own_cpu_s": own,
        "resident_before_bytes": before,
        "resident_after_trace_bytes": meter.resident_bytes["trace"],
        "resident_after_bytes": meter.resident_bytes["all"],
        "peak_bytes": _status_bytes("VmHWM"),
        **_knowledge(traced.graph),
    }


def _knowledge(graph):
    computing = [op for op in graph.ops if op.role not in _UNCOMPUTED]
    return {
        "ops": len(graph),
        "edges": len(graph.edges),
        "edge_bytes_known_share": graph.edge_bytes_known_share,
        "ops_with_layer_share": _share(graph.ops, "layer"),
        "computing_ops_with_layer_share": _share(computing, "layer"),
        "computing_ops_with_flops_share": _share(computing, "flops"),
    }


def _share(ops, field):
    return sum(getattr(op, field) is not None for op in ops) / len(ops)


def _status_bytes(field):
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s*(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) * 1024


def _reset_peak():
    """Let the kernel's peak of resident memory (VmHWM) start anew at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
