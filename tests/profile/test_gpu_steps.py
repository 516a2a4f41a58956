"""Steps of a process with several GPUs, on profiles built by hand: no public profile of
TensorFlow with copies between GPUs is known.
"""

import pytest
from recorded_profiles import activity, copied, event, gpu, host, write

from placement_advisor.errors import AdvisorError
from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.gpu_planes import read_gpu_steps
from placement_advisor.profile.xplane import Line

GPUS = {"GPU:0": 0, "GPU:1": 1}


def read(tmp_path, gpu_lines):
    """Read a profile with one step, from 0 to 1000 ns."""
    gpus = [gpu(number, *lines) for number, lines in gpu_lines.items()]
    step = event("train", 0, 1_000, step_num=0, _r=1)
    return read_gpu_steps(write(tmp_path / "gpus.xplane.pb", *gpus, host([step])), GPUS)


def test_a_peer_copy_that_overlaps_compute_by_hand(tmp_path):
    details = "kind_src:device kind_dst:device size:4096 dest:1 async:1"
    copy = event("MemcpyP2P", 100, 300, memcpy_details=details, edge_name="edge_7_tower/MatMul")
    product = event("sgemm", 0, 100, tf_op="tower/MatMul:MatMul")
    others = event("sgemm", 150, 250, tf_op="other/MatMul:MatMul")
    relu = event("relu", 240, 260, tf_op="other/Relu:Relu")
    profile = read(tmp_path, {0: [[product], [copy]], 1: [[others], [relu]]})

    # GPU 1: from 150 to 260 on two streams.
    assert profile.compute_ns == {"GPU:0": 100, "GPU:1": 110}
    assert profile.transfers == (copied("GPU:0", "GPU:1", 4096, 200, 200 - 110, SizeBasis.PROFILE),)
    assert profile.op_ns == {"tower/MatMul": 100, "other/MatMul": 100, "other/Relu": 20}
    assert profile.activities == (
        activity("[CUDA memcpy PtoP]", 200, is_copy=True),
        activity("sgemm", 100, 100),
        activity("relu", 20),
    )
    (span,) = (span for span in profile.timeline if span.is_copy)
    assert (span.lane, span.name) == ("GPU:0 → GPU:1", "edge_7_tower/MatMul")


@pytest.mark.parametrize(
    ("name", "details", "ends"),
    [
        ("MEMCPYHToH", "size:8", ("host", "host", 8)),
        ("MemcpyP2P", "", ("GPU:0", "unknown", None)),
        ("ncclDevKernel_AllReduce", "", ("GPU:0", "collective", None)),
    ],
)
def test_copies_without_a_known_end_or_size_are_transfers(tmp_path, name, details, ends):
    copied = event(name, 5, 25, memcpy_details=details)
    (total,) = read(tmp_path, {0: [[event("sgemm", 0, 10), copied]]}).transfers
    assert (total.source, total.target, total.size_bytes) == ends
    assert (total.time_ns, total.exposed_ns) == (20, 15)


@pytest.mark.parametrize("details", ["size:8 dest:0", "size:8"])
def test_a_copy_within_a_card_is_its_own_work_and_no_transfer(tmp_path, details):
    copy = event("MemcpyD2D", 20, 30, memcpy_details=details, tf_op="a:Identity")
    profile = read(tmp_path, {0: [[copy]]})
    assert profile.transfers == ()
    assert profile.compute_ns["GPU:0"] == 10
    assert profile.op_ns == {}
    assert profile.activities == (activity("[CUDA memcpy DtoD]", 10),)


@pytest.mark.parametrize(
    ("name", "number"),
    [("TensorFlow Ops", 14), ("Stream #14", 0xDEADBEEF + 1), ("Stream #14", -0x21524111)],
)
def test_derived_lines_do_not_count_again(tmp_path, name, number):
    derived = Line(name=name, id=number, events=(event("sgemm", 500, 900, tf_op="a:MatMul"),))
    profile = read(tmp_path, {0: [[event("sgemm", 0, 10, tf_op="a:MatMul")], derived]})
    assert profile.op_ns == {"a": 10}


def test_work_outside_the_step_or_on_other_devices_is_left_out(tmp_path):
    outside = event("sgemm", -5, -1), event("sgemm", 1_000, 1_010)
    elsewhere = [[event("sgemm", 0, 500)]]
    profile = read(tmp_path, {0: [[event("sgemm", 0, 10), *outside]], 2: elsewhere})
    assert profile.compute_ns == {"GPU:0": 10, "GPU:1": 0}
    assert profile.activities[0].calls == 1

    with pytest.raises(AdvisorError, match=r"no step of .*gpus\.xplane\.pb is complete"):
        read(tmp_path, {0: [Line(name="TensorFlow Ops", events=(event("sgemm", 0, 500),))]})
