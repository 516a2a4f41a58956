"""Profiles that are cut short, flipped and full of lies: one clear error, or figures."""

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from damaged_files import LIMIT_S, MOST_BYTES, Reader, examined
from recorded_profiles import copy, event, gpu, host, kernel, mark, read_alone, write

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.xplane import Plane
from placement_advisor.profile.xplane_schema import TASK_PLANE


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


NVPROF = b"""\
==7== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   60.00%  3.00000s      1000  3.0000ms  1.0000ms  5.0000ms  void gemm<int>(T*)
                   20.16%  1.00980s     78292  12.898us  4.3190us  893.33us  [CUDA memcpy PtoP]
      API calls:   99.00%  9.00000s      5000  1.8000ms  1.0000us  20.000ms  cudaLaunchKernel
"""
# Sizes and rates, and a row of another GPU.
TRACE = b"""\
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


def read(path):
    """Read a profile; its figures hold, or the error says what to do."""
    try:
        totals = read_alone(path).totals
    except AdvisorError as error:
        if not error.hint:
            pytest.fail("it does not say what to do")
        raise
    assert all(device.idle_ns is None or device.idle_ns >= 0 for device in totals.devices)
    assert 0 <= totals.unclassified_share <= 1


def readers():
    """Return what reads each kind of profile."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = sound(Path(folder) / "p.xplane.pb")
    trace = trace_text()
    return {
        "profile": Reader(suffix=".xplane.pb", sound=recorded, read=read),
        "chrome-trace": Reader(suffix=".json", sound=trace, read=read),
        "packed-trace": Reader(suffix=".json.gz", sound=trace, read=read, seal=gzip.compress),
        "nvprof": Reader(suffix=".txt", sound=NVPROF, read=read),
        "gpu-trace": Reader(suffix=".csv", sound=TRACE, read=read),
    }


READERS = readers()


@pytest.mark.parametrize("kind", READERS)
def test_damaged_profiles_are_read_or_refused(kind):
    found = examined(READERS[kind], range(300))
    assert found["refused"] > 30
    assert found["read"] > 0
    assert found["grown_bytes"] < MOST_BYTES
    assert found["slowest_s"] < LIMIT_S


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
PLANES = "is corrupt: it has more than 100,000 planes and lines"


def events(names):
    return json.dumps([chrome(name, i) for i, name in enumerate(names)]).encode()


# Each with what makes it, and what it is refused with.
LARGE = {
    # A gigabyte in a megabyte.
    "bomb.json.gz": (
        lambda: gzip.compress(b"[" + b" " * 9_999_999) * 100,
        "is packed more densely than any trace",
    ),
    "packed.json.gz": (lambda: gzip.compress(events(["gemm"] * 90_000)), ""),
    "planes.xplane.pb": (lambda: b"\x0a\x00" * 2_000_000, PLANES),
    "lines.xplane.pb": (lambda: b"\x0a\x80\x92\xf4\x01" + b"\x1a\x00" * 2_000_000, PLANES),
    "lists.json": (
        lambda: b'{"x": [' + b"[]," * 10_000_000 + b'1], "traceEvents": []}',
        "no GPU at work",
    ),
    "long-event.json": (lambda: b'[{"a": "' + b"x" * 30_000_000 + b'"}]', "is corrupt"),
    "deep.json": (lambda: b"[" * 30_000_000, "is corrupt"),
    "names.json": (lambda: events(f"k{i}" for i in range(150_000)), "more than 100,000 names"),
    "newlines.txt": (lambda: NVPROF + b"\n" * 8_000_000, ""),
    "spaces.txt": (lambda: NVPROF + b" " * 40_000_000, ""),
    "section.txt": (lambda: NVPROF + b"==7== A" + b" " * 40_000_000, ""),
    "rows.txt": (
        lambda: b"Profiling result:\n" + b"0.0% 1s 1 1s 1s 1s a\n" * 1_000_000,
        "100,000 rows",
    ),
    "copies.csv": (lambda: TRACE + b"1,1,1,1,a (0),,,[CUDA memcpy DtoH]\n" * 100_000, ""),
    "long-row.csv": (lambda: TRACE + b"1,1,1,1,a (0),,," + b"a" * 40_000_000, ""),
    "kernels.csv": (
        lambda: TRACE + b"".join(b"1,1,,,a (0),,,k%d\n" % i for i in range(150_000)),
        "more than 100,000 names",
    ),
}


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """Read all in one process, by size: what one has taken a later one may take as well."""
    folder = tmp_path_factory.mktemp("large")
    sizes = {}
    for name, (make, _) in LARGE.items():
        content = make()
        (folder / name).write_bytes(content)
        sizes[name] = len(content)
    # What is packed may take what it unpacks to; the bomb, nothing.
    sizes |= {"bomb.json.gz": 0, "packed.json.gz": len(events(["gemm"] * 90_000))}
    names = sorted(LARGE, key=sizes.get)
    first = [folder / f"sound{reader.suffix}" for reader in READERS.values()]
    for path, reader in zip(first, READERS.values(), strict=True):
        path.write_bytes(reader.seal(reader.sound))
    ran = subprocess.run(
        [sys.executable, "-c", READER, *first, *(folder / name for name in names)],
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()[len(first) :]
    return {name: (sizes[name], *json.loads(line)) for name, line in zip(names, lines, strict=True)}


@pytest.mark.parametrize("name", LARGE)
def test_what_would_fill_the_memory_does_not(readings, name):
    size_bytes, said, grown, took_s = readings[name]
    _, refused = LARGE[name]
    assert refused in said
    assert bool(said) == bool(refused)
    assert not said or f"/{name}" in said
    assert grown < MOST_BYTES + 3 * size_bytes
    assert took_s < LIMIT_S
