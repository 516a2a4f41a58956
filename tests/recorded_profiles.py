"""Profiles as a user might record them, built by hand."""

from placement_advisor.measurement.measurement import Activity, SizeBasis, TransferTotal
from placement_advisor.profile.formats import recorded_run
from placement_advisor.profile.read_profile import read_profile, read_trace
from placement_advisor.profile.worker_steps import PlannedCopy
from placement_advisor.profile.xplane import Event, Line, Plane, lines_of, space_file, write_planes

EPOCH_NS = 1_795_257_210_000_000_000


def event(name, start_ns, end_ns, /, **stats):
    at_ns = EPOCH_NS + start_ns
    return Event(name=name, start_ns=at_ns, duration_ns=end_ns - start_ns, stats=stats)


def mark(step, start_ns, end_ns):
    """Return a step mark as Keras writes it."""
    return event("Profiled batch", start_ns, end_ns, step_num=step)


def kernel(op, start_ns, end_ns, **stats):
    """Return a kernel as CUPTI lists it; ``op`` has its kind behind a colon."""
    return event("some_kernel", start_ns, end_ns, tf_op=op, **stats)


def copy(name, size_bytes, start_ns, time_ns, dest=0):
    details = f"kind_src:device kind_dst:device size:{size_bytes} dest:{dest} async:1"
    return event(name, start_ns, start_ns + time_ns, memcpy_details=details)


def host(*threads):
    lines = [t if isinstance(t, Line) else Line(name="python", events=tuple(t)) for t in threads]
    return Plane(name="/host:CPU", lines=tuple(lines))


def gpu(number, *streams, **stats):
    lines = [
        stream
        if isinstance(stream, Line)
        else Line(name=f"Stream #{13 + i}(Compute)", id=13 + i, events=tuple(stream))
        for i, stream in enumerate(streams)
    ]
    return Plane(name=f"/device:GPU:{number}", lines=tuple(lines), stats=stats)


def crossing(name, source, target, *, port=0, size_bytes=64):
    """Return the plan to copy a tensor between workers."""
    return PlannedCopy(
        send_node=f"{name}_send",
        recv_node=f"{name}_recv",
        producer=name,
        port=port,
        source=source,
        target=target,
        size_bytes=size_bytes,
    )


def copied(source, target, size_bytes, time_ns, exposed_ns, basis=SizeBasis.SHAPES):
    """Return what a single copy a step makes in all."""
    of_all = {"size_bytes": size_bytes, "time_ns": time_ns, "exposed_ns": exposed_ns}
    return TransferTotal(source=source, target=target, count=1, size_basis=basis, **of_all)


def activity(name, *calls_ns, is_copy=False):
    """Return the row of calls that took these times."""
    times = {"total_ns": sum(calls_ns), "min_ns": min(calls_ns), "max_ns": max(calls_ns)}
    return Activity(name=name, calls=len(calls_ns), is_copy=is_copy, **times)


def write(path, *planes):
    """Write a profile, with its folders, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_planes(path, planes)
    return path


def read_planes(path, ahead_ns=0):
    """Return the planes of a file as a clock has them that is so far behind the file's."""
    file = space_file(path, ahead_ns)
    return tuple(Plane(name=p.name, lines=lines_of(file, p), stats=p.stats) for p in file.planes)


def read_alone(path):
    """Read a profile of any format without the graph of its step."""
    return read_profile(path, graph=None, ask_xprof=False, working=lambda *_: None)


def trace_of(path):
    """Read a file, or the newest run of a folder, as a trace."""
    return read_trace(path, recorded_run(path).files, _advanced)


def _advanced(done_bytes, total_bytes):
    assert 0 <= done_bytes <= total_bytes
