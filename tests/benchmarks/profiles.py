"""How fast profiles are read, and how much of workers' time has a named cause.

    python tests/benchmarks/profiles.py big [--gigabytes 1]   # a generated profile of four GPUs
    python tests/benchmarks/profiles.py big-host              # of a process on its own cores
    python tests/benchmarks/profiles.py trace PATH            # a profile; XProf's time beside it
    python tests/benchmarks/profiles.py explained [SAMPLE…]   # the candidates of sample models

Reads as `advisor profile` does, in a process of its own, and prints seconds and the most memory
that process had. ``explained`` analyses each sample on two workers and reads what was profiled.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from silent import Silent

from placement_advisor.profile.read_profile import read_profile
from placement_advisor.profile.xplane_schema import new_space

_SILENT = Silent().working
_SAMPLES = Path(__file__).parents[2] / "sample_models"
_GPUS = 4
_EVENTS_OF_A_LINE = 200_000
_KERNELS = 200
_THREADS = 4
_OPS = 2_000
_STEP_NS = 20_000_000
_STEPS_OF_A_LINE = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["big", "big-host", "trace", "explained", "read", "xprof"])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    asked = parser.parse_args()
    if asked.what == "read":
        read_profile(asked.paths[0], graph=None, ask_xprof=False, working=_SILENT)
    elif asked.what == "xprof":
        _ask_xprof(asked.paths)
    elif asked.what == "explained":
        _explained(asked.paths)
    elif asked.what == "trace":
        _time("read", asked.paths[0])
        _time("xprof", *sorted(asked.paths[0].rglob("*.xplane.pb")))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "big.xplane.pb"
            generate = _generate if asked.what == "big" else _generate_host
            generate(path, round(asked.gigabytes * 1e9))
            print(f"{path.stat().st_size / 1e9:.2f} GB")
            _time("read", path)


def _time(what: str, *paths: Path) -> None:
    """Print the seconds of a process that reads, less those of one that reads nothing."""
    command = [sys.executable, __file__, what, *map(str, paths)]
    start = time.monotonic()
    subprocess.run([sys.executable, __file__, "xprof"], check=True, capture_output=True)
    idle_s = time.monotonic() - start
    start = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    took_s = time.monotonic() - start - idle_s
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{what}: {took_s:.1f} s after a start of {idle_s:.1f} s, {most / 1e9:.2f} GB at most")


def _ask_xprof(paths: list[Path]) -> None:
    """Ask for the overview on a copy; nothing without paths."""
    from placement_advisor.profile.totals import xprof_overview

    if paths:
        print(xprof_overview(paths))


def _generate(path: Path, size_bytes: int) -> None:
    """Write a profile of so many bytes: a line of kernels over and over, on each of the GPUs."""
    with path.open("wb") as file:
        for gpu in range(_GPUS):
            space = new_space()
            plane = space.planes.add(name=f"/device:GPU:{gpu}")
            for i in range(1, _KERNELS + 1):
                plane.event_metadata[i].name = f"kernel_{i}"
            for i, name in enumerate(("correlation_id", "group_id"), 1):
                plane.stat_metadata[i].name = name
            line = new_space().planes.add().lines.add(name="Stream #13(Compute)", id=13)
            line.timestamp_ns = 10**18
            for k in range(_EVENTS_OF_A_LINE):
                event = line.events.add(metadata_id=k % _KERNELS + 1, offset_ps=k * 10_000_000)
                event.duration_ps = 9_000_000
                event.stats.add(metadata_id=1, uint64_value=k)
                event.stats.add(metadata_id=2, uint64_value=k // 1_000)
            content = line.SerializeToString()
            field = b"\x1a" + _varint(len(content)) + content
            head = plane.SerializeToString()
            times = max(1, size_bytes // _GPUS // len(field))
            file.write(b"\x0a" + _varint(len(head) + times * len(field)) + head)
            for _ in range(times):
                file.write(field)


def _generate_host(path: Path, size_bytes: int) -> None:
    """Write a profile of so many bytes: a process with four threads that run ops and receive.

    Beside an op stand about as many other events as beside those of real workers, with as many
    stats. Each step has all ops once and is marked; what the threads do repeats step by step.
    """
    space = new_space()
    plane = space.planes.add(name="/host:CPU")
    names = ["ExecutorState::Process", "MemoryAllocation", "ThreadpoolListener::Record"]
    names += ["ExecutorState::ProcessAsync::Done", "train"]
    names += [f"layer_{i}/MatMul:MatMul" for i in range(_OPS)]
    for i, name in enumerate(names, 1):
        plane.event_metadata[i].name = name
    stats = ["id", "bytes_reserved", "address", "name", "kernel_type", "step_num", "_Recv"]
    stats += [f"layer_{i}/MatMul_S{2 * i + 1}" for i in range(_OPS)]
    for i, name in enumerate(stats, 1):
        plane.stat_metadata[i].name = name
    blocks = [_thread(thread, names, stats) for thread in range(_THREADS)]
    # The start of a block takes a field of ten bytes, and its frame some more.
    times = size_bytes // sum(len(block) + 20 for block in blocks)
    head = plane.SerializeToString()
    fields = [
        (b"\x1a" + _varint(len(line) + len(block)) + line, block)
        for thread, block in enumerate(blocks)
        for line in (_line(thread, i) for i in range(times))
    ]
    size_bytes = len(head) + sum(len(line) + len(block) for line, block in fields)
    with path.open("wb") as file:
        file.write(b"\x0a" + _varint(size_bytes) + head)
        for line, block in fields:
            file.write(line)
            file.write(block)


def _line(thread: int, number: int) -> bytes:
    """Return id, name and start of a line, whose events are to follow."""
    name = f"tf_Compute/{thread}".encode()
    start = _varint(10**18 + number * _STEPS_OF_A_LINE * _STEP_NS)
    return b"\x08" + _varint(thread + 1) + b"\x12" + _varint(len(name)) + name + b"\x18" + start


def _thread(thread: int, names: list[str], stats: list[str]) -> bytes:
    """Return the events of a thread in `_STEPS_OF_A_LINE` steps as fields of a line."""
    line = new_space().planes.add().lines.add()
    first_op = names.index("layer_0/MatMul:MatMul") + 1
    first_node = stats.index("layer_0/MatMul_S1") + 1
    for step in range(_STEPS_OF_A_LINE):
        at_ps = step * _STEP_NS * 1_000
        if thread == 0:
            mark = line.events.add(metadata_id=names.index("train") + 1, offset_ps=at_ps)
            mark.duration_ps = (_STEP_NS - 1_000) * 1_000
            mark.stats.add(metadata_id=stats.index("step_num") + 1, int64_value=step)
        for op in range(thread, _OPS, _THREADS):
            ran_ps = at_ps + op * _STEP_NS * 1_000 // _OPS
            for name, offset_ps, duration_ps, of_event in (
                (1, 0, 9_000_000, (1, 1)),
                (2, 1_000_000, 10_000, (1, 2, 3)),
                (first_op + op, 1_000_000, 7_000_000, (1, 1)),
                (3, 9_000_000, 100_000, (1, 2)),
            ):
                event = line.events.add(metadata_id=name, offset_ps=ran_ps + offset_ps)
                event.duration_ps = duration_ps
                for stat in of_event:
                    event.stats.add(metadata_id=stat, int64_value=op * 1_000)
            if op % 10 == 0:
                event = line.events.add(metadata_id=4, offset_ps=ran_ps + 200_000)
                event.duration_ps = 100_000
                event.stats.add(metadata_id=4, ref_value=first_node + op)
                event.stats.add(metadata_id=5, ref_value=stats.index("_Recv") + 1)
    return bytes(line.SerializeToString())


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _explained(samples: list[Path]) -> None:
    for sample in samples or sorted(_SAMPLES.glob("*.py")):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "out"
            advisor = str(Path(sys.executable).with_name("advisor"))
            ran = subprocess.run(
                [advisor, "analyze", str(sample), "--rounds", "3", "-q", "-o", str(output)],
                capture_output=True,
                check=False,
            )
            if ran.returncode:
                print(f"{sample.stem}: not analysed: {ran.stderr.decode()[-200:]}")
                continue
            analysis = json.loads((output / "analysis.json").read_text())
            for candidate in analysis["candidates"]:
                run = (candidate["measured"] or {}).get("profile")
                if run is None:
                    continue
                read = read_profile(output / run, graph=None, ask_xprof=False, working=_SILENT)
                shares = read.totals.explained_shares
                told = ", ".join(f"{device} {share:.1%}" for device, share in shares.items())
                print(f"{sample.stem} {candidate['name']}: {told}", flush=True)


if __name__ == "__main__":
    main()
