"""Which tensors a profile blames, by hand and against sets of moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from recorded_profiles import event, gpu, kernel, trace_of, write

from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.profile.device_trace import DeviceUse
from placement_advisor.profile.read_profile import totals_with_layers, trace_with_sizes
from placement_advisor.profile.totals import totals_of

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.profile.device_trace import Trace
    from placement_advisor.profile.xplane import Event


def sent(tensor: str, start_ns: int, end_ns: int, size_bytes: int | None, dest: int = 1) -> Event:
    size = "" if size_bytes is None else f"size:{size_bytes} "
    details = {"memcpy_details": f"{size}dest:{dest}", "edge_name": f"edge_7_{tensor}"}
    return event("MemcpyP2P", start_ns, end_ns, **details)


def to_a_busy_device(folder: Path) -> Trace:
    """Two tensors come to GPU:1, which computes until 100: a small one at 0, a large one then."""
    copies = [sent("small", 0, 110, 4), sent("large", 100, 150, 1_000_000)]
    return trace_of(write(folder / "p.xplane.pb", gpu(0, copies), gpu(1, [kernel("a:A", 0, 100)])))


def test_a_tensor_that_lay_ready_for_a_busy_device_stands_behind_one_that_it_waited_for(
    tmp_path: Path,
) -> None:
    profile = totals_of(to_a_busy_device(tmp_path))
    # Both are exposed from 100 to 110 and share it: 5 each; then large alone until 150.
    assert [(t.tensor, t.time_ns, t.exposed_ns) for t in profile.tensors] == [
        ("edge_7_large", 50, 45),
        ("edge_7_small", 110, 5),
    ]
    assert profile.devices[1].total[DeviceUse.PEER].exposed_ns == 45 + 5


def test_copies_on_several_routes_share_what_the_device_waited(tmp_path: Path) -> None:
    first = gpu(0, [sent("a", 0, 60, 8, dest=2)])
    second = gpu(
        1, [sent("b", 0, 60, 8, dest=2), event("MemcpyP2P", 0, 60, memcpy_details="dest:2")]
    )
    profile = totals_of(
        trace_of(write(tmp_path / "p.xplane.pb", first, second, gpu(2, [kernel("a:A", 60, 70)])))
    )
    # A copy that names no tensor takes its third as well.
    assert [(t.tensor, t.exposed_ns) for t in profile.tensors] == [
        ("edge_7_a", 20),
        ("edge_7_b", 20),
    ]
    assert profile.devices[2].total[DeviceUse.PEER].exposed_ns == 60


@pytest.mark.parametrize("seed", range(20))
def test_tensors_never_take_more_than_the_device_waited(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    starts, lengths = draw.integers(0, 300, 12), draw.integers(0, 40, 12)
    spans = [
        (int(start), int(start + length)) for start, length in zip(starts, lengths, strict=True)
    ]
    copies = [sent(f"t{i % 4}", *span, 8) for i, span in enumerate(spans[:8])]
    kernels = [kernel("a:A", *span) for span in sorted(spans[8:])]
    path = write(
        tmp_path / "p.xplane.pb", gpu(0, sorted(copies, key=lambda e: e.start_ns)), gpu(1, kernels)
    )
    profile = totals_of(trace_of(path))
    waited_ns = profile.devices[1].total[DeviceUse.PEER].exposed_ns
    assert waited_ns is not None
    shared_ns = sum(tensor.exposed_ns for tensor in profile.tensors)
    # Each of the four is rounded down.
    assert waited_ns - 4 <= shared_ns <= waited_ns
    assert all(tensor.exposed_ns <= tensor.time_ns for tensor in profile.tensors)


def test_a_size_that_the_profile_does_not_give_is_the_graphs(tmp_path: Path) -> None:
    copies = [sent("relu", 0, 10, None), sent("relu", 20, 30, 999), sent("far", 40, 50, None)]
    trace = trace_of(write(tmp_path / "p.xplane.pb", gpu(0, copies), gpu(1, [kernel("a:A", 0, 5)])))
    graph = OpGraph([Op(name="relu", kind="Relu", output_bytes=(4_000,))], [])
    profile = totals_with_layers(totals_of(trace_with_sizes(trace, graph)), graph)
    (route,) = profile.routes
    assert (route.size_bytes, route.of_unknown_size) == (4_000 + 999, 1)
    sizes = {t.tensor: (t.size_bytes, t.of_unknown_size) for t in profile.tensors}
    assert sizes == {"edge_7_relu": (4_999, 0), "edge_7_far": (0, 1)}
    assert "sizes of 1 copies are those of the graph" in profile.notes
    assert trace_with_sizes(trace, OpGraph([], [])) == trace
