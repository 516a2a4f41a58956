"""GPU profiles that are known exactly: every count, byte, tensor and exposed nanosecond."""

from dataclasses import replace

import pytest
from recorded_profiles import copy, event, gpu, host, kernel, mark, trace_of, write

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import DeviceUse, Route
from placement_advisor.profile.gpu_planes import read_gpu_steps
from placement_advisor.profile.read_profile import totals_with_layers, trace_with_sizes
from placement_advisor.profile.totals import ByHost, RoutePerStep, totals_of
from placement_advisor.profile.xplane import Line


def read(path, *planes):
    return totals_of(trace_of(write(path, *planes)))


def two_gpus():
    """Two steps of 1000 ns: kernels, and copies that kernels hide, partly hide, and do not hide."""
    kernels, copies = ([], []), ([], [])
    for step in (0, 1):
        at = 1000 * step
        kernels[0].append(kernel("a/MatMul:MatMul", at, at + 300, group_id=step))
        kernels[0].append(event("memset", at + 300, at + 320, group_id=step))
        kernels[1].append(kernel("b/MatMul:MatMul", at + 400, at + 900, group_id=step))
        copies[0].append(copy("MemcpyP2P", 4096, at + 250, 200, dest=1))
        copies[0].append(copy("MemcpyH2D", 100, at + 50, 30))
        copies[0].append(copy("MemcpyD2D", 64, at + 700, 10, dest=0))
        copies[1].append(copy("MemcpyP2P", 1000, at + 850, 100, dest=0))
    return [gpu(number, kernels[number], copies[number]) for number in (0, 1)]


def test_every_figure_of_two_gpus_is_exact(tmp_path):
    profile = read(tmp_path / "p.xplane.pb", *two_gpus())
    # The second step ends with its last kernel, which is 900 ns after its first began.
    assert profile.step_ns == (900,)
    assert profile.warm_up_steps == 1
    assert profile.span_ns == 1950
    first, second = profile.devices
    assert {use: (a.time_ns, a.exposed_ns) for use, a in first.total.items()} == {
        DeviceUse.COMPUTE: (640, 640),
        # 250 to 450 on the way out, of which kernels hide 70; 850 to 950 on the way in, hidden by
        # nothing here.
        DeviceUse.PEER: (600, 2 * (130 + 100)),
        DeviceUse.HOST: (60, 0),
        DeviceUse.WITHIN: (20, 20),
        DeviceUse.COLLECTIVE: (0, 0),
        DeviceUse.UNCLASSIFIED: (0, 0),
    }
    assert first.idle_ns == 1950 - 2 * (320 + 130 + 10 + 100)
    assert second.total[DeviceUse.COMPUTE].time_ns == 1000
    assert second.total[DeviceUse.PEER].exposed_ns == 2 * (150 + 50)
    assert first.per_step[DeviceUse.COMPUTE].time_ns == 320
    assert first.per_step[DeviceUse.PEER].time_ns == 200 + 50
    assert first.idle_per_step_ns == 900 - (320 + 130 + 10 + 50)
    routes = {route.route: route for route in profile.routes}
    there = routes[Route("GPU:0", "GPU:1", CopyKind.PEER)]
    assert (there.count, there.size_bytes, there.time_ns) == (2, 8192, 400)
    # GPU:1 waits for it, and computes from 400 on.
    assert there.exposed_ns == 2 * 150
    assert there.bytes_per_s == pytest.approx(8192 / 400e-9)
    once = RoutePerStep(count=1, size_bytes=4096, time_ns=200, exposed_ns=150)
    assert there.per_step == once
    back = routes[Route("GPU:1", "GPU:0", CopyKind.PEER)]
    assert (back.count, back.size_bytes, back.exposed_ns) == (2, 2000, 200)
    host_copy = routes[Route("host", "GPU:0", CopyKind.HOST_TO_DEVICE)]
    assert (host_copy.count, host_copy.size_bytes, host_copy.exposed_ns) == (2, 200, 0)
    within = routes[Route("GPU:0", "GPU:0", CopyKind.DEVICE_TO_DEVICE)]
    assert (within.count, within.size_bytes, within.time_ns) == (2, 128, 20)
    rows = {
        row.name: (row.calls, row.total_ns, row.min_ns, row.max_ns) for row in profile.activities
    }
    assert rows == {
        "some_kernel": (4, 1600, 300, 500),
        "memset": (2, 40, 20, 20),
        "[CUDA memcpy PtoP]": (4, 600, 100, 200),
        "[CUDA memcpy HtoD]": (2, 60, 30, 30),
        "[CUDA memcpy DtoD]": (2, 20, 10, 10),
    }
    longest_first = sorted(rows, key=lambda name: -rows[name][1])
    assert [row.name for row in profile.activities] == longest_first
    assert profile.unclassified_share == replace(profile, devices=()).unclassified_share == 0


@pytest.mark.parametrize(
    ("name", "details", "use", "ends"),
    [
        ("MemcpyP2P", "size:8 dest:1", DeviceUse.PEER, ("GPU:0", "GPU:1")),
        ("MemcpyD2D", "size:8 dest:1", DeviceUse.PEER, ("GPU:0", "GPU:1")),
        ("CopyDeviceToDevice", "size:8 dest:1", DeviceUse.PEER, ("GPU:0", "GPU:1")),
        ("CopyDeviceToDevice", "size:8 dest:0", DeviceUse.WITHIN, ("GPU:0", "GPU:0")),
        ("MemcpyP2P", "size:8 dest:7", DeviceUse.PEER, ("GPU:0", "GPU:7")),
        ("MemcpyP2P", "size:8", DeviceUse.PEER, ("GPU:0", "unknown")),
        ("MemcpyD2H", "kind:pageable size:8 dest:0 async:1", DeviceUse.HOST, ("GPU:0", "host")),
        ("MemcpyD2H", "num_bytes:8", DeviceUse.HOST, ("GPU:0", "host")),
        ("MemcpyH2D", "kind:pageable size:8 dest:0 async:1", DeviceUse.HOST, ("host", "GPU:0")),
        ("MemcpyOther", "size:8", DeviceUse.UNCLASSIFIED, ("GPU:0", "unknown")),
    ],
)
def test_name_and_details_tell_the_use_and_ends_of_a_copy(tmp_path, name, details, use, ends):
    path = tmp_path / "p.xplane.pb"
    copied = event(name, 10, 20, memcpy_details=details, edge_name="edge_1_a")
    planes = gpu(0, [kernel("a:A", 0, 15), copied]), gpu(1, [])
    profile = read(path, *planes)
    (route,) = profile.routes
    assert (route.route.source, route.route.target) == ends
    assert (route.count, route.size_bytes, route.of_unknown_size) == (1, 8, 0)
    total = profile.devices[0].total
    assert (total[use].time_ns, total[DeviceUse.COMPUTE].time_ns) == (10, 15)
    (t,) = profile.tensors
    assert (t.tensor, t.count, t.size_bytes, t.time_ns) == ("edge_1_a", 1, 8, 10)
    assert profile.unclassified_share == (10 / 25 if use is DeviceUse.UNCLASSIFIED else 0)
    # The reader of steps says the same, but for what is work within the card.
    write(path, *planes, host([event("train", 0, 1_000, step_num=0)]))
    transfers = read_gpu_steps(path, {"GPU:0": 0, "GPU:1": 1}).transfers
    # GPU 0 computes until 15, GPU 1 never.
    exposed_ns = 10 if ends[1] == "GPU:1" else 5
    assert [(t.source, t.target, t.size_bytes, t.time_ns, t.exposed_ns) for t in transfers] == (
        [] if use is DeviceUse.WITHIN else [(*ends, 8, 10, exposed_ns)]
    )


def test_collectives_derived_lines_and_copies_without_a_size_count_as_what_they_are(tmp_path):
    copies = [event("MemcpyH2D", 0, 10), copy("MemcpyH2D", 50, 20, 10)]
    (route,) = read(tmp_path / "p.xplane.pb", gpu(0, copies)).routes
    assert (route.count, route.of_unknown_size, route.size_bytes) == (2, 1, 50)
    assert route.bytes_per_s is None

    profile = read(
        tmp_path / "p.xplane.pb",
        gpu(0, [kernel("a:A", 0, 50)], [event("ncclDevKernel_AllReduce_Sum_f32_RING", 40, 90)]),
    )
    total = profile.devices[0].total
    assert (total[DeviceUse.COMPUTE].time_ns, total[DeviceUse.COLLECTIVE].time_ns) == (50, 50)
    assert total[DeviceUse.COLLECTIVE].exposed_ns == 40
    assert not profile.routes

    derived = Line(name="TensorFlow Ops", id=0xDEADBEF2, events=(event("a:A", 0, 60),))
    other = Line(name="Launch Stats", id=3, events=(event("x", 0, 60),))
    profile = read(tmp_path / "p.xplane.pb", gpu(0, [kernel("a:A", 0, 60)], derived, other))
    assert profile.devices[0].total[DeviceUse.COMPUTE].time_ns == 60
    assert profile.notes == ("lines that are no streams were not read: Launch Stats",)


@pytest.mark.parametrize(
    "launched_ns", [[2, 12, 22], [2, 12, 22, 29]], ids=["in-a-step", "as-a-step-ends"]
)
def test_a_kernel_is_of_the_step_that_launched_it(tmp_path, launched_ns):
    # The host is done with three steps before the GPU begins the second.
    marks = [mark(i, 10 * i, 10 * i + 9) for i in range(3)]
    launches, kernels = [], []
    for i, at_ns in enumerate(launched_ns):
        launches.append(event("launch", at_ns, at_ns, correlation_id=i + 1))
        kernels.append(kernel("a:A", 100 * i, 100 * i + 60, correlation_id=i + 1))
    profile = read(tmp_path / "p.xplane.pb", host([*marks, *launches]), gpu(0, kernels))
    assert profile.steps_from == "step marks"
    assert profile.warm_up_steps == 1
    # The last step ends with the third kernel, at 260.
    assert profile.step_ns == (100, 60)


def test_marks_without_correlations_cut_time_and_without_marks_there_are_totals(
    tmp_path,
):
    marks = [mark(i, 100 * i, 100 * i + 90) for i in range(3)]
    kernels = [kernel("a:A", 100 * i + 10, 100 * i + 60) for i in range(3)]
    profile = read(tmp_path / "p.xplane.pb", host(marks), gpu(0, kernels))
    assert profile.step_ns == (100, 90)

    profile = read(tmp_path / "p.xplane.pb", gpu(0, [kernel("a:A", 0, 60)]))
    assert (profile.step_ns, profile.steps_from) == ((), "none")
    assert profile.devices[0].per_step is None
    assert profile.devices[0].total[DeviceUse.COMPUTE].time_ns == 60


def half(name, tensor, start_ns, end_ns, size=8):
    """Return a copy from or to the host of a tensor."""
    details = "" if size is None else f"size:{size}"
    return event(name, start_ns, end_ns, memcpy_details=details, edge_name=tensor)


def joined(path, *streams):
    """Return what went from GPU to GPU by way of the host; the streams are of one GPU each."""
    planes = [gpu(i, [kernel("a:A", 0, 5), *events]) for i, events in enumerate(streams)]
    profile = read(path / "p.xplane.pb", *planes)
    # Both halves stay what they are.
    copies = sum(route.count for route in profile.routes)
    assert copies == sum(map(len, streams))
    return [
        (each.source, each.target, each.count, each.size_bytes, each.of_unknown_size)
        for each in profile.by_host
    ]


def test_a_copy_by_way_of_the_host_is_joined_from_its_halves(tmp_path):
    first = [half("MemcpyD2H", "edge_1_a", at, at + 10) for at in (10, 110)]
    second = [half("MemcpyH2D", "edge_1_a", at, at + 10) for at in (20, 150)]
    # Twice 8 bytes: a half that starts at the moment at which the other ends belongs to it.
    assert joined(tmp_path, first, second) == [("GPU:0", "GPU:1", 2, 16, 0)]


@pytest.mark.parametrize(
    "second",
    [
        half("MemcpyH2D", "edge_1_a", 19, 30),
        half("MemcpyH2D", "edge_2_b", 20, 30),
        half("MemcpyH2D", "edge_1_a", 20, 30, size=9),
        half("MemcpyH2D", "edge_1_a", 20, 30, size=None),
        copy("MemcpyH2D", 8, 20, 10),
        half("MemcpyD2H", "edge_1_a", 20, 30),
    ],
)
def test_halves_that_cannot_belong_together_are_not_joined(tmp_path, second):
    assert joined(tmp_path, [half("MemcpyD2H", "edge_1_a", 10, 20)], [second]) == []


def test_halves_of_one_gpu_or_of_several_hosts_are_none_of_one_copy(tmp_path):
    there_and_back = [half("MemcpyD2H", "e", 10, 20), half("MemcpyH2D", "e", 30, 40)]
    assert joined(tmp_path, there_and_back, []) == []

    sent, received = half("MemcpyD2H", "e", 10, 20), half("MemcpyH2D", "e", 30, 40)
    write(tmp_path / "one.xplane.pb", gpu(0, [sent]))
    write(tmp_path / "two.xplane.pb", gpu(1, [received]), gpu(2, [sent]))
    assert totals_of(trace_of(tmp_path)).by_host == (
        ByHost(source="two/GPU:2", target="two/GPU:1", count=1, of_unknown_size=0, size_bytes=8),
    )


def test_each_half_is_joined_once_and_the_first_to_come_is_the_first_to_go(tmp_path):
    found = joined(
        tmp_path,
        [half("MemcpyD2H", "e", 10, 30), half("MemcpyD2H", "e", 70, 80, size=None)],
        [half("MemcpyD2H", "e", 10, 20)],
        [half("MemcpyH2D", "e", at, at + 5) for at in (40, 50, 60)],
        [half("MemcpyH2D", "e", 90, 95, size=None)],
    )
    rows = [("GPU:0", "GPU:2", 1, 8, 0), ("GPU:0", "GPU:3", 1, 0, 1), ("GPU:1", "GPU:2", 1, 8, 0)]
    assert found == rows


def test_gpus_of_several_hosts_are_told_apart_and_a_profile_without_devices_says_so(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / f"{name}.xplane.pb", gpu(0, [kernel("a:A", 0, 60)]))
    profile = totals_of(trace_of(tmp_path))
    assert [device.device for device in profile.devices] == ["one/GPU:0", "two/GPU:0"]

    path = write(tmp_path / "p.xplane.pb", host([mark(0, 0, 10)]))
    with pytest.raises(AdvisorError, match="shows no device at work"):
        trace_of(path)


def sent(tensor, start_ns, end_ns, size_bytes, dest=1):
    size = "" if size_bytes is None else f"size:{size_bytes} "
    details = {"memcpy_details": f"{size}dest:{dest}", "edge_name": f"edge_7_{tensor}"}
    return event("MemcpyP2P", start_ns, end_ns, **details)


def test_a_tensor_that_lay_ready_for_a_busy_device_stands_behind_one_that_it_waited_for(tmp_path):
    # Two tensors come to GPU:1, which computes until 100: a small one at 0, a large one then.
    copies = [sent("small", 0, 110, 4), sent("large", 100, 150, 1_000_000)]
    planes = gpu(0, copies), gpu(1, [kernel("a:A", 0, 100)])
    profile = read(tmp_path / "p.xplane.pb", *planes)
    # Both are exposed from 100 to 110 and share it: 5 each; then large alone until 150.
    found = [(t.tensor, t.time_ns, t.exposed_ns) for t in profile.tensors]
    assert found == [("edge_7_large", 50, 45), ("edge_7_small", 110, 5)]
    assert profile.devices[1].total[DeviceUse.PEER].exposed_ns == 45 + 5


def test_copies_on_several_routes_share_what_the_device_waited(tmp_path):
    nameless = event("MemcpyP2P", 0, 60, memcpy_details="dest:2")
    second = [sent("b", 0, 60, 8, dest=2), nameless]
    planes = gpu(0, [sent("a", 0, 60, 8, dest=2)]), gpu(1, second), gpu(2, [kernel("a:A", 60, 70)])
    profile = read(tmp_path / "p.xplane.pb", *planes)
    # A copy that names no tensor takes its third as well.
    exposed_ns = [(t.tensor, t.exposed_ns) for t in profile.tensors]
    assert exposed_ns == [("edge_7_a", 20), ("edge_7_b", 20)]
    assert profile.devices[2].total[DeviceUse.PEER].exposed_ns == 60


def test_a_size_that_the_profile_does_not_give_is_the_graphs(tmp_path):
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
