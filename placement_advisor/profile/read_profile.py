"""Recorded profiles are read in any supported format and joined with the op graph.

XSpace files hold GPUs, or processes that compute on their own cores, such as workers on gRPC.

A profile names a tensor by the op that makes it (``edge_42_`` or nothing before the name), not by
its output. Its size is known from the graph where that op has one output; a size that the profile
gives stands.
"""

from __future__ import annotations

import filecmp
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.errors import AdvisorError
from placement_advisor.profile import device_trace, totals, waits
from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile.chrome_trace import read_chrome_trace
from placement_advisor.profile.formats import CLIENT_FILE, FileFormat, recorded_run, text_lines
from placement_advisor.profile.gpu_planes import add_streams, gpu_planes
from placement_advisor.profile.gpu_tables import gpu_trace, summary_totals
from placement_advisor.profile.recorded_costs import plain
from placement_advisor.profile.xspace_columns import SpaceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph

    Ints = NDArray[np.int64]


_GROUP = "group_id"


def read_trace(
    path: Path, paths: Sequence[Path], progress: Callable[[int, int], None]
) -> device_trace.Trace:
    """Read the XSpace files of one run, which were found at a path.

    ``progress`` is told how many bytes were read, and of how many.

    Raises:
        AdvisorError: a file is corrupt, or no device is seen at work.
    """
    files = [SpaceFile(file) for file in _distinct(paths)]
    run = str(files[0].path.parent if path.is_dir() else path)
    builder = device_trace.TraceBuilder()
    total, done = sum(file.size_bytes for file in files), 0

    def advance(read_bytes: int) -> None:
        nonlocal done
        done += read_bytes
        progress(done, total)

    gpus = [gpu_planes(file) for file in files]
    hosts = [f"{_host(file)}/" if len(files) > 1 else "" for file in files]
    names = [
        {number: f"{host}GPU:{number}" for number in of_file}
        for host, of_file in zip(hosts, gpus, strict=True)
    ]
    for device in (device for of_file in names for device in of_file.values()):
        builder.device(device)
    planes = [plane for of_file in gpus for plane in of_file.values()]
    if any(plane.lines for plane in planes):
        grouped = any(_GROUP in plane.stat_names.values() for plane in planes)
        starts, steps_from = _read_gpus(files, names, builder, advance, grouped=grouped)
        return builder.build(run, starts, steps_from)
    return _read_hosts(run, files, builder, advance)


def _distinct(files: Sequence[Path]) -> list[Path]:
    """Return the files; the client not twice, which is the first worker of a mirrored step."""
    workers = [file for file in files if file.name != CLIENT_FILE]
    return [
        file
        for file in files
        if file in workers or not any(filecmp.cmp(file, w, shallow=False) for w in workers)
    ]


def _host(file: SpaceFile) -> str:
    return file.path.name.removesuffix(".xplane.pb")


def _read_hosts(
    run: str,
    files: Sequence[SpaceFile],
    builder: device_trace.TraceBuilder,
    advance: Callable[[int], None],
) -> device_trace.Trace:
    """Read processes that compute themselves, and one that asked them to, if there is one."""
    steps = profile_steps.outermost(
        span
        for file in files
        for span in profile_steps.read_marks(file, launches=False).steps.pairs()
    )
    processes = [
        process
        for file in files
        if (process := waits.read_process(file, _host(file), builder, advance)) is not None
    ]
    if not processes:
        raise AdvisorError(
            f"the profile {run} shows no device at work",
            hint="profile some steps while they run",
        )
    spans = steps.pairs()
    cuts = [*steps.start.tolist(), int(steps.end[-1])] if spans else []
    copies = waits.copies_between(processes, cuts, builder)
    return builder.build(
        run,
        cuts,
        "step marks",
        waits.find_waits(processes, copies, spans[1:] if len(spans) > 1 else spans),
    )


def _read_gpus(
    files: Sequence[SpaceFile],
    names: Sequence[Mapping[int, str]],
    builder: device_trace.TraceBuilder,
    advance: Callable[[int], None],
    *,
    grouped: bool,
) -> tuple[list[int], str]:
    """Read all GPUs; return the moments that cut their time into steps, and whence they are.

    ``grouped``: kernels say which step they are of.
    """
    steps: dict[int, tuple[int, int]] = {}
    marked: list[tuple[int, int]] = []
    for file, of_file in zip(files, names, strict=True):
        if grouped:
            add_streams(file, of_file, builder, steps, _GROUP, lambda keys: keys, advance)
        else:
            marks = profile_steps.read_marks(file, launches=True)
            marked += marks.steps.pairs()
            key, step_of = profile_steps.CORRELATION, marks.step_of
            add_streams(file, of_file, builder, steps, key, step_of, advance)
    spans = sorted(steps.values()) or sorted(marked)
    if not spans:
        return [], "none"
    cuts = [*(first_ns for first_ns, _ in spans), max(last_ns for _, last_ns in spans)]
    return cuts, "group_id" if grouped else "step marks"


_EDGE = re.compile(r"^(?:edge|memtype)_\d+_")


def trace_with_sizes(trace: device_trace.Trace, graph: OpGraph) -> device_trace.Trace:
    """Return the trace with the graph's sizes of tensors whose copies do not give theirs."""
    found = [_size(_made_by(tensor, graph)) for tensor in trace.tensors]
    # Copies that name no tensor look at the last place.
    sizes = np.array(
        [device_trace.UNKNOWN_BYTES if size is None else size for size in [*found, None]], np.int64
    )
    copied, known = {}, 0
    for route, own in trace.copied.items():
        is_unknown = own.size_bytes == device_trace.UNKNOWN_BYTES
        size_bytes = np.where(is_unknown, sizes[own.tensor], own.size_bytes)
        copied[route] = replace(own, size_bytes=size_bytes)
        known += int((size_bytes != own.size_bytes).sum())
    if not known:
        return trace
    note = f"sizes of {known:,} copies are those of the graph"
    return replace(trace, copied=copied, notes=(*trace.notes, note))


def totals_with_layers(profile: totals.ProfileTotals, graph: OpGraph) -> totals.ProfileTotals:
    """Return the profile with what the graph knows of its tensors."""
    tensors = tuple(_joined(tensor, graph) for tensor in profile.tensors)
    known = sum(tensor.op is not None for tensor in tensors)
    note = f"{known} of {len(tensors)} tensors are in the graph"
    return replace(profile, tensors=tensors, notes=(*profile.notes, note))


def _joined(tensor: totals.TensorTotals, graph: OpGraph) -> totals.TensorTotals:
    op = _made_by(tensor.tensor, graph)
    if op is None:
        return tensor
    return replace(tensor, op=op.name, layer=op.layer, tensor_bytes=_size(op))


def _made_by(tensor: str, graph: OpGraph) -> Op | None:
    names = (tensor, _EDGE.sub("", tensor), plain(_EDGE.sub("", tensor)))
    name = next((name for name in names if name in graph), None)
    return None if name is None else graph.op(name)


def _size(op: Op | None) -> int | None:
    """Return the size of the op's only output, None if it has another number, or is none."""
    return op.output_bytes[0] if op is not None and len(op.output_bytes) == 1 else None


_BYTES_PER_MB = 1_000_000
_READING = "reading the profile"


def read_profile(
    path: Path,
    *,
    graph: OpGraph | None,
    ask_xprof: bool,
    working: Callable[[str, int, int], None],
) -> totals.ReadProfile:
    """Read a recorded profile: XSpace files, a Chrome trace, or a table of nvprof or Nsight.

    The ``graph`` of the step says more of its tensors. ``working`` is told what is done, how much
    of it, and of how much.

    Raises:
        AdvisorError: there is none, it is corrupt, or it shows no device at work.
    """

    def read(done_bytes: int, total_bytes: int) -> None:
        working(_READING, done_bytes // _BYTES_PER_MB, total_bytes // _BYTES_PER_MB)

    read(0, 0)
    run = recorded_run(path)
    form = run.form
    if form is FileFormat.XSPACE:
        found: device_trace.Trace | totals.ProfileTotals = read_trace(path, run.files, read)
    elif form in (FileFormat.CHROME, FileFormat.PYTORCH):
        form, found = read_chrome_trace(run.files[0])
    else:
        found = _of_table(run.files[0], form)
    if not isinstance(found, totals.ProfileTotals):
        found = totals.totals_of(found if graph is None else trace_with_sizes(found, graph))
    profile = totals.ReadProfile(form=form, totals=found, xprof=None, which=run.note)
    if ask_xprof and form is FileFormat.XSPACE:
        working("asking XProf", 0, 1)
        profile = replace(profile, xprof=totals.xprof_overview(run.files))
        if profile.xprof is None:
            notes = (*found.notes, "XProf's overview shows no steps of it")
            profile = replace(profile, totals=replace(found, notes=notes))
    if graph is None:
        return profile
    return replace(profile, totals=totals_with_layers(profile.totals, graph))


def _of_table(path: Path, form: FileFormat) -> device_trace.Trace | totals.ProfileTotals:
    has_rows_of_events = form in (FileFormat.NVPROF_TRACE, FileFormat.NSIGHT_TRACE)
    try:
        read = gpu_trace if has_rows_of_events else summary_totals
        return read(str(path), form, text_lines(path))
    except OSError as error:
        raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
