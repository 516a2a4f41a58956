"""Chrome traces of GPUs, as TensorBoard and as Kineto write them, and what is none."""

import gzip
import json

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.profile import chrome_trace
from placement_advisor.profile.chrome_trace import read_chrome_trace
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import DeviceUse, Route
from placement_advisor.profile.formats import FileFormat
from placement_advisor.profile.totals import totals_of


def ran(name, ts, dur, **other):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": 7, **other}


def named(what, name, pid, tid=0):
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def read(path, content):
    path.write_text(json.dumps(content))
    return totals_of(read_chrome_trace(path)[1])


KINETO = [
    ran("gemm", 1_000_000_000.5, 100, cat="kernel", args={"device": 0, "stream": 7}),
    ran(
        "Memcpy PtoP (Device -> Device)",
        1_000_000_050.5,
        100,
        cat="gpu_memcpy",
        args={"fromDevice": 0, "inDevice": 0, "toDevice": 1, "bytes": 4096},
    ),
    ran("Memset (Device)", 1_000_000_200, 1, cat="gpu_memset", args={"device": 1}),
    ran("aten::mm", 1_000_000_000, 50, cat="cpu_op", args={}),
]
TIMELINE = [
    named("process_name", "/job:localhost/replica:0/task:0/device:GPU:0 Compute", 1),
    named("process_name", "/job:localhost/replica:0/task:0/device:GPU:0 Tensors", 2),
    ran("MatMul", 10, 5, pid=1, cat="Op", args={"name": "a", "op": "MatMul"}),
]


def test_kineto_tells_kernels_and_copies_by_category(tmp_path):
    profile = read(tmp_path / "trace.json", {"traceEvents": KINETO})
    first, second = profile.devices
    assert (first.device, second.device) == ("GPU:0", "GPU:1")
    assert first.total[DeviceUse.COMPUTE].time_ns == 100_000
    assert first.total[DeviceUse.PEER].exposed_ns == 50_000
    assert second.total[DeviceUse.COMPUTE].time_ns == 1_000
    (route,) = profile.routes
    assert route.route == Route("GPU:0", "GPU:1", CopyKind.PEER)
    assert (route.count, route.size_bytes, route.time_ns) == (1, 4096, 100_000)
    instant = {"ph": "X", "cat": "kernel", "ts": 1, "args": {"device": 1}}
    assert read(tmp_path / "trace.json", [instant]).devices[-1].device == "GPU:1"


def test_tensorboard_tells_them_by_planes_and_streams_packed_or_not(tmp_path):
    details = "kind_src:device kind_dst:host size:64 dest:0 async:1"
    peer = details.replace("host", "device").replace("64", "32").replace("dest:0", "dest:7")
    events = [
        named("process_name", "/device:GPU:2", 5),
        named("thread_name", "Stream #13(Compute)", 5, 13),
        named("thread_name", "TensorFlow Ops", 5, 14),
        named("process_name", "/host:CPU", 6),
        *(ran("gemm", 100 * i, 40, pid=5, tid=13, args={"group_id": str(i)}) for i in range(3)),
        ran("a:MatMul", 0, 40, pid=5, tid=14),
        ran("MemcpyD2H", 50, 10, pid=5, tid=13, args={"memcpy_details": details, "edge_name": "e"}),
        ran("MemcpyP2P", 60, 9, pid=5, tid=13, args={"memcpy_details": peer, "edge_name": "f"}),
        ran("work", 0, 1000, pid=6, tid=1),
    ]
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    form, trace = read_chrome_trace(path)
    assert form is FileFormat.TRACE_VIEWER
    profile = totals_of(trace)
    assert [device.device for device in profile.devices] == ["GPU:2"]
    assert profile.devices[0].total[DeviceUse.COMPUTE].time_ns == 120_000
    assert profile.step_ns == (100_000, 40_000)
    assert [
        (copied.tensor, copied.route.target, copied.size_bytes) for copied in profile.tensors
    ] == [
        ("e", "host", 64),
        ("f", "GPU:7", 32),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no list of traceEvents"),
        (b'{"traceEvents": [1, 2', "is corrupt"),
        (b'["a\\"]', "is corrupt"),
        (b"\x1f\x8bxx", "is corrupt"),
        (b"[" * 100_000, "is corrupt"),
        (b'{"traceEvents": 3}', "no list of traceEvents"),
        (b"[]", "shows no GPU at work"),
        (b'[{"ph": "M", "args": 3}]', "shows no GPU at work"),
        (b'[{"ph":"X","cat":"kernel","ts":1,"args":{"device":9999999}}]', "shows no GPU at work"),
        (b'[{"ph": "X", "cat": "kernel", "name": "k", "ts": 1e300}]', "shows no GPU at work"),
        (b'[{"ph": "X", "cat": "kernel", "ts": %s}]' % (b"9" * 400), "shows no GPU at work"),
        (json.dumps(KINETO[-1:]).encode(), r"\(PyTorch trace \(Kineto\)\) shows no GPU at work"),
        (json.dumps(TIMELINE).encode(), "is a timeline of TensorFlow 1"),
    ],
)
def test_what_is_no_trace_of_gpus_is_refused(tmp_path, content, said):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(AdvisorError, match=said) as error:
        read_chrome_trace(path)
    assert str(path) in error.value.message


def test_events_are_those_of_the_list_wherever_pieces_of_the_text_end(tmp_path, monkeypatch):
    monkeypatch.setattr(chrome_trace, "_LONGEST_EVENT", 40)
    path = tmp_path / "t.json"
    listed = [{"a": 'é\\ "]},'}, 3, {"b": [{"c": 1}]}, {}]
    for padding in range(50):
        for before, after in (("[", "]"), ('{"other": {"x": [1]}, "traceEvents" :\n[', "]}")):
            inner = (" " * padding + ",").join(json.dumps(each) for each in listed)
            path.write_text(f"\ufeff{before}{inner}{after}")
            assert list(chrome_trace.events(path)) == [e for e in listed if isinstance(e, dict)]
    path.write_text('[{"a": "' + 90 * "x" + '"}]')
    with pytest.raises(ValueError, match="Unterminated string"):
        list(chrome_trace.events(path))
