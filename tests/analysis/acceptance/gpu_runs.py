"""The known step on two GPUs, as TensorFlow and CUPTI would record it: built by hand.

No profile of TensorFlow with copies between GPUs is public, and none was recorded here.
"""

from dataclasses import dataclass, replace

from recorded_profiles import crossing, event, gpu, host, write

from placement_advisor.analysis.acceptance import (
    Acceptance,
    Cards,
    judge_placement,
    judge_profile,
    judge_values,
    planned_pairs,
)
from placement_advisor.graph.op import Kernel, KernelFamily, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.devices import Device
from placement_advisor.machine.testbed_plan import TestbedKind, plan_testbed
from placement_advisor.profile.gpu_planes import read_gpu_steps
from placement_advisor.testbed.testbed import ProfileFiles
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.known_step import LARGE_SIDE, OPS, outputs

STEPS = 3
STEP_US, EVERY_US = 900, 1_000
STEP_NS = 850_000
NUMBERS = {"GPU:0": 0, "GPU:1": 1}


@dataclass(frozen=True, slots=True)
class GpuOp:
    """An op on a GPU, in µs since the step began."""

    op: str
    gpu: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that a GPU lists."""

    producer: str
    gpu: int
    start_us: int
    end_us: int
    size_bytes: int
    name: str = "MemcpyP2P"
    dest: int | None = None


# What reads a copy is launched 40 µs after it ended.
KERNELS = (
    # No op of the known step, though its name begins as that of one.
    GpuOp("near/large_product/Read", 0, 18, 19),
    GpuOp("near/product_1", 0, 20, 30),
    GpuOp("near/product_2", 0, 30, 40),
    GpuOp("near/product_3", 0, 40, 50),
    GpuOp("near/row_sums", 0, 50, 55),
    GpuOp("near/large_product", 0, 55, 235),
    GpuOp("far/product_1", 1, 110, 120),
    GpuOp("far/product_2", 1, 120, 130),
    GpuOp("far/product_3", 1, 130, 140),
    GpuOp("far/sums_added", 1, 140, 145),
    GpuOp("far/large_sum", 1, 380, 400),
    GpuOp("far/large_product", 1, 400, 580),
    GpuOp("far/large_total", 1, 580, 600),
    GpuOp("near/last_product", 0, 240, 250),
    GpuOp("near/total", 0, 250, 255),
    GpuOp("near/large_sum", 0, 750, 770),
)
COPIED = (
    Copy("near/product_3", 0, 50, 70, 262_144, dest=1),
    Copy("near/row_sums", 0, 55, 60, 1_024, dest=1),
    Copy("near/large_product", 0, 235, 335, 4_194_304, dest=1),
    Copy("far/product_3", 1, 140, 160, 262_144, dest=0),
    Copy("far/sums_added", 1, 160, 180, 262_144, dest=0),
    Copy("far/large_total", 1, 600, 700, 4_194_304, dest=0),
)
# The input comes from the host, where a pipeline leaves it.
INPUT = Copy("near_input", 0, 5, 15, 262_144, name="MemcpyH2D")
CARDS = Cards("Tesla V100-SXM2-16GB", {("GPU:0", "GPU:1"): "OK"})
NO_ACCESS = CARDS._replace(peer_access={("GPU:0", "GPU:1"): "CNS"})
PLAN = replace(
    plan_testbed(None, 2),
    kind=TestbedKind.GPUS,
    devices=tuple(Device(name=name, kind="GPU") for name in NUMBERS),
    description="2 GPUs",
)
PREPARED = Prepared(
    moved_ops=(),
    crossings=tuple(
        crossing(each.producer, f"GPU:{each.gpu}", f"GPU:{each.dest}", size_bytes=each.size_bytes)
        for each in COPIED
    ),
)
PRODUCT = Kernel(KernelFamily.LINEAR, (1, LARGE_SIDE, LARGE_SIDE, LARGE_SIDE))
GRAPH = OpGraph((Op(name, "MatMul", kernel=PRODUCT) for name in OPS), ())


def over_host(copies):
    """Return each copy in two parts, as without access to a peer's memory."""
    found = []
    for copy in copies:
        middle_us = (copy.start_us + copy.end_us) // 2
        found += [
            replace(copy, name="MemcpyD2H", dest=None, end_us=middle_us),
            replace(copy, name="MemcpyH2D", dest=None, gpu=copy.dest, start_us=middle_us),
        ]
    return tuple(found)


def run(
    folder,
    *,
    kernels=KERNELS,
    copies=COPIED,
    cards=CARDS,
    step_us=STEP_US,
    steps=STEPS,
    prepared=PREPARED,
):
    """Return what would be found of steps with these events."""
    path = folder / "gpus.xplane.pb"
    write(path, *_planes(kernels, (INPUT, *copies), step_us))
    (pair,) = planned_pairs(PLAN, GRAPH, cards, {})
    findings = (
        judge_placement(pair, prepared),
        judge_values(list(outputs().values())),
        *judge_profile(pair, read_gpu_steps(path, NUMBERS), steps, STEP_NS),
    )
    return replace(pair, findings=findings, files=ProfileFiles(client=path, devices={}))


def acceptance(*pairs):
    """Return what would be found of these."""
    return Acceptance(PLAN, GRAPH, pairs, {"ann": "user", "gpu-box": "machine"})


def _planes(kernels, copies, step_us):
    starts = [EVERY_US * step for step in range(STEPS)]
    marks = [_event("train", at, at + step_us, step_num=i) for i, at in enumerate(starts)]
    streams = {0: ([], []), 1: ([], [])}
    for at in starts:
        for each in kernels:
            ends_us = (at + each.start_us, at + each.end_us)
            found = _event("some_kernel", *ends_us, tf_op=f"{each.op}:MatMul")
            streams[each.gpu][0].append(found)
        for each in copies:
            ends_us = (at + each.start_us, at + each.end_us)
            details = "kind:pinned size:{}" if each.dest is None else "size:{} dest:{}"
            details = f"{details.format(each.size_bytes, each.dest)} async:1"
            edge = f"edge_7_{each.producer}"
            found = _event(each.name, *ends_us, memcpy_details=details, edge_name=edge)
            streams[each.gpu][1].append(found)
    return [*(gpu(number, *found) for number, found in streams.items()), host(marks)]


def _event(name, start_us, end_us, **stats):
    return event(name, 1_000 * start_us, 1_000 * end_us, **stats)
