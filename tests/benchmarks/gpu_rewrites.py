"""What Grappler makes of a model's step by default, on a GPU and on a CPU.

    PYTHONPATH=tests:tests/benchmarks python tests/benchmarks/gpu_rewrites.py [--capability 8.0]
        MODEL.py train|infer

Prints the numbers of ops by kind before and after, where they differ. The GPU is one of a virtual
cluster, by default a V100 (7.0): no GPU is needed, and none is used.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.grappler.cluster import Cluster

from placement_advisor.tf.load.model_source import ModelSource
from placement_advisor.tf.trace import tracer

_DEVICE = "/job:localhost/replica:0/task:0/device:{}:0"


def main() -> None:
    """Print both."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("model")
    arguments.add_argument("mode", choices=("train", "infer"))
    arguments.add_argument("--capability", default="7.0")
    asked = arguments.parse_args()
    tracer.load_workload(ModelSource(path=asked.model, mode=asked.mode))
    tracer.trace_workload(asked.model, None)
    flat = tracer.traced_step().flat
    before = Counter(node.op for node in flat.graph_def().node)
    ends = {*(name.split(":")[0] for name in flat.outputs), *flat.targets, *flat.inputs}
    for kind in ("GPU", "CPU"):
        after = Counter(
            node.op for node in _optimized(flat.graph_def(), ends, kind, asked.capability).node
        )
        print(f"{kind}: {before.total()} -> {after.total()} ops")
        for op in sorted(before.keys() | after.keys()):
            if before[op] != after[op]:
                print(f"    {op}: {before[op]} -> {after[op]}")


def _optimized(graph_def: Any, ends: set[str], kind: str, capability: str) -> Any:
    """Return the graph as rewritten with all of its ops but inputs on a device of that kind."""
    for node in graph_def.node:
        node.device = _DEVICE.format("CPU" if node.op == "Placeholder" else kind)
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(sorted(ends))
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    devices = [_device("CPU", frequency=2_700, num_cores=16)]
    if kind == "GPU":
        devices.append(_device("GPU", frequency=1_400, num_cores=80, bandwidth=900_000_000))
        versions = {"architecture": capability, "cuda": "12030", "cudnn": "9000"}
        devices[-1].properties.environment.update(versions)
    cluster = Cluster(devices=devices, disable_detailed_stats=True)
    return tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False, cluster=cluster)


def _device(kind: str, **properties: int) -> Any:
    device = device_properties_pb2.NamedDevice(name=_DEVICE.format(kind))
    device.properties.type = kind
    for name, value in properties.items():
        setattr(device.properties, name, value)
    return device


if __name__ == "__main__":
    main()
