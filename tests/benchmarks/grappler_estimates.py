"""What TensorFlow's own simulator makes of a traced step; runs in a child of the advisor's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import device_properties_pb2, meta_graph_pb2
from tensorflow.python.grappler import cluster, item

from placement_advisor.tf.trace.bundle import Bundle

_REPEATS = 3
# A V100: MHz, multiprocessors, kB/s, bytes, and the architecture by which Grappler knows its lanes.
_GPU = {"frequency": 1380, "num_cores": 80, "bandwidth": 900_000_000, "memory_size": 16 << 30}
_CPU = {"frequency": 2600, "num_cores": 8, "bandwidth": 60_000_000}
_HOST = "/job:localhost/replica:0/task:0/device:"


def estimate(folder: str, device_of: dict[str, str]) -> tuple[float, float]:
    """Return the best time of an estimate and the step time estimated, both in seconds.

    ``device_of`` places ops by name, on ``GPU:0`` and ``GPU:1``.
    """
    bundle = Bundle.load(Path(folder))
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(bundle.graph_def)
    for node in meta_graph.graph_def.node:
        if node.name in device_of:
            node.device = _HOST + device_of[node.name]
    ends = [*bundle.targets, *(name.partition(":")[0] for name in bundle.outputs)]
    meta_graph.collection_def["train_op"].node_list.value.extend(ends)
    devices = [_named("CPU:0", _CPU), _named("GPU:0", _GPU), _named("GPU:1", _GPU)]
    virtual = cluster.Cluster(devices=devices, disable_detailed_stats=False, disable_timeline=True)
    step = item.Item(meta_graph, ignore_colocation=True, ignore_user_placement=False)
    times_s = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        _, step_s, _ = virtual.MeasureCosts(step)
        times_s.append(time.perf_counter() - start)
    return min(times_s), step_s


def _named(name: str, properties: dict[str, int]) -> Any:
    known = device_properties_pb2.DeviceProperties(type=name.partition(":")[0], **properties)
    if known.type == "GPU":
        known.environment["architecture"] = "7.0"
    return device_properties_pb2.NamedDevice(name=_HOST + name, properties=known)
