"""Profiles that are cut short, flipped and full of lies: one clear error, or figures."""

import gzip
import json
import random
import resource
import subprocess
import sys
import time

import pytest
from damaged_files import damaged
from recorded_profiles import copy, event, gpu, host, kernel, mark, write

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.read_profile import read_profile
from placement_advisor.profile.xplane import Plane
from placement_advisor.profile.xplane_schema import TASK_PLANE

LIMIT_S = 10.0
# On top of three times the file, which is small here.
MOST_BYTES = 100_000_000


def sound(path):
    """Return a profile with all that the reader looks at."""
    kernels = [
        kernel("a/MatMul:MatMul", 10 * i, 10 * i + 8, correlation_id=i, group_id=i // 5)
        for i in range(20)
    ]
    copies = [copy("MemcpyP2P", 64, 10 * i + 4, 5, dest=1) for i in range(20)]
    named = [event("MemcpyH2D", 3, 9, memcpy_details="size:5 dest:0", edge_name="edge_1_a")]
    launches = [event("launch", i, i + 1, correlation_id=i) for i in range(20)]
    task = Plane(name=TASK_PLANE, stats={"profile_start_time": 1_795_257_210_000_000_000})
    planes = (host([mark(0, 0, 90), *launches]), gpu(0, kernels, copies), gpu(1, named), task)
    return write(path, *planes).read_bytes()


NVPROF = """\
==7== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   60.00%  3.00000s      1000  3.0000ms  1.0000ms  5.0000ms  void gemm<int>(T*)
                   20.16%  1.00980s     78292  12.898us  4.3190us  893.33us  [CUDA memcpy PtoP]
      API calls:   99.00%  9.00000s      5000  1.8000ms  1.0000us  20.000ms  cudaLaunchKernel
"""
# Sizes and rates, and a row of another GPU.
GPU_TRACE = """\
"Start","Duration","Size","Throughput","Device","Src Dev","Dst Dev","Name"
ms,us,MB,GB/s,,,,
1.0,100.0,1.0,10.0,"V100 (0)","V100 (0)","V100 (1)","[CUDA memcpy PtoP]"
2.0,300.0,,,"V100 (1)",,,"void gemm<int, 4>(T*) [207]"
"""


def chrome(name, at_us):
    args = {"device": 0, "toDevice": 1, "bytes": 64, "edge_name": "edge_1_a", "group_id": at_us}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": at_us, "dur": 1, "args": args}


def trace_text():
    events = [chrome(name, at) for at in range(20) for name in ("gemm", "MemcpyP2P")]
    plane = {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": "/device:GPU:2"}}
    return json.dumps({"other": [1, {"a": []}], "traceEvents": [plane, *events]}).encode()


# Reads profiles after a sound one, and says of each what came of it, by how much memory grew at
# most so far, and how long that took.
READER = """
import json, resource, sys, time
from pathlib import Path
from placement_advisor.errors import AdvisorError
from placement_advisor.profile.read_profile import read_profile

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = None
for path in sys.argv[1:]:
    start, said = time.process_time(), ""
    try:
        read_profile(Path(path), graph=None, ask_xprof=False, working=lambda *words: None)
    except AdvisorError as error:
        said = f"{error.message} {error.hint}"
    before = before or most()
    print(json.dumps([said, most() - before, time.process_time() - start]))
"""


def read_apart(folder, name, content):
    """Read a file in a process of its own; return what it was refused with, and memory grown."""
    path, first = folder / name, folder / f"sound-{name}"
    path.write_bytes(content)
    packed = name.endswith(".gz")
    if name.endswith(".pb"):
        sound(first)
    else:
        text = trace_text() if ".json" in name else NVPROF.encode()
        first.write_bytes(gzip.compress(text) if packed else text)
    ran = subprocess.run(
        [sys.executable, "-c", READER, str(first), str(path)], capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    _, (said, grown, took_s) = map(json.loads, ran.stdout.splitlines())
    assert took_s < LIMIT_S
    assert not said or str(path) in said
    return said, grown


def refusal(path):
    """Read a profile; return the error, None if its figures can be."""
    try:
        totals = read_profile(path, graph=None, ask_xprof=False, working=lambda *_: None).totals
    except AdvisorError as error:
        return error
    assert all(device.idle_ns is None or device.idle_ns >= 0 for device in totals.devices)
    assert 0 <= totals.unclassified_share <= 1
    return None


@pytest.mark.parametrize(
    ("name", "count", "least_read"),
    [
        # Most flips do not hit the structure; most cuts do.
        ("p.xplane.pb", 1_000, 100),
        pytest.param("p.xplane.pb", 10_000, 1_000, marks=pytest.mark.slow),
        ("t.json", 500, 10),
        ("t.json.gz", 500, 0),  # It has a checksum.
        ("nvprof.txt", 500, 50),
        ("nvprof.csv", 500, 50),
    ],
)
def test_damaged_profiles_are_read_or_refused(tmp_path, name, count, least_read):
    path = tmp_path / name
    content = {
        "p.xplane.pb": sound(path),
        "t.json": trace_text(),
        "t.json.gz": gzip.compress(trace_text(), mtime=0),
        "nvprof.txt": NVPROF.encode(),
        "nvprof.csv": GPU_TRACE.encode(),
    }[name]
    draw = random.Random(17)
    path.write_bytes(content)
    assert refusal(path) is None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(count):
        path.write_bytes(damaged(content, draw))
        start = time.process_time()
        error = refusal(path)
        if error is not None:
            assert str(path) in error.message
            assert error.hint
            refused += 1
        assert time.process_time() - start < LIMIT_S
    assert refused > count // 10
    assert count - refused >= least_read
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MOST_BYTES + 3 * len(content)


def test_a_packed_bomb_is_refused_and_a_packed_trace_takes_three_times_what_it_unpacks_to(tmp_path):
    # A gigabyte in a megabyte.
    bomb = gzip.compress(b"[" + b" " * 9_999_999) * 100
    said, grown = read_apart(tmp_path, "bomb.json.gz", bomb)
    assert "is packed more densely than any trace" in said
    assert grown < MOST_BYTES

    text = json.dumps([chrome("gemm", i) for i in range(90_000)]).encode()
    packed = gzip.compress(text)
    assert 10 < len(text) / len(packed) < 100
    said, grown = read_apart(tmp_path, "t.json.gz", packed)
    assert not said
    assert grown < MOST_BYTES + 3 * len(text)


@pytest.mark.parametrize(
    "content",
    [b"\x0a\x00" * 2_000_000, b"\x0a\x80\x92\xf4\x01" + b"\x1a\x00" * 2_000_000],
    ids=["planes", "lines"],
)
def test_empty_planes_and_lines_without_end_are_refused(tmp_path, content):
    said, grown = read_apart(tmp_path, "p.xplane.pb", content)
    assert "is corrupt: it has more than 100,000 planes and lines" in said
    assert grown < MOST_BYTES + 3 * len(content)


@pytest.mark.parametrize(
    ("name", "content", "refused"),
    [
        ("t.json", b'{"x": [' + b"[]," * 10_000_000 + b'1], "traceEvents": []}', "no GPU at work"),
        ("t.json", b'[{"a": "' + b"x" * 30_000_000 + b'"}]', "is corrupt"),
        ("t.json", b"[" * 30_000_000, "is corrupt"),
        (
            "t.json",
            json.dumps([chrome(f"k{i}", i) for i in range(150_000)]).encode(),
            "more than 100,000 names",
        ),
        ("n.txt", NVPROF.encode() + b"\n" * 8_000_000, ""),
        ("n.txt", NVPROF.encode() + b" " * 40_000_000, ""),
        ("n.txt", NVPROF.encode() + b"==7== A" + b" " * 40_000_000, ""),
        ("n.txt", b"Profiling result:\n" + b"0.0% 1s 1 1s 1s 1s a\n" * 1_000_000, "100,000 rows"),
        ("t.csv", GPU_TRACE.encode() + b"1,1,1,1,a (0),,,[CUDA memcpy DtoH]\n" * 100_000, ""),
        ("t.csv", GPU_TRACE.encode() + b"1,1,1,1,a (0),,," + b"a" * 40_000_000, ""),
        (
            "t.csv",
            GPU_TRACE.encode() + b"".join(b"1,1,,,a (0),,,k%d\n" % i for i in range(150_000)),
            "more than 100,000 names",
        ),
    ],
    ids=[
        *("lists", "long-event", "deep", "names", "lines", "spaces", "section", "rows"),
        *("copies", "long-row", "kernels"),
    ],
)
def test_what_would_fill_the_memory_does_not(tmp_path, name, content, refused):
    said, grown = read_apart(tmp_path, name, content)
    assert refused in said
    assert bool(said) == bool(refused)
    assert grown < MOST_BYTES + 3 * len(content)
