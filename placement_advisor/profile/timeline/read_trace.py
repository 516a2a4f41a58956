"""The XSpace files of a run as a trace, whether GPUs computed or processes on their own cores."""

from __future__ import annotations

import filecmp
from typing import TYPE_CHECKING, Protocol

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.run_files import CLIENT_FILE
from placement_advisor.profile.timeline.device_trace import TraceBuilder, widen
from placement_advisor.profile.timeline.gpu_trace import GpuPlanes
from placement_advisor.profile.timeline.host_trace import copies_between, read_process
from placement_advisor.profile.timeline.marks import CORRELATION, outermost, read_marks
from placement_advisor.profile.timeline.waiting import waits
from placement_advisor.profile.xspace.space_file import SpaceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from placement_advisor.profile.timeline.device_trace import Trace

_GROUP = "group_id"


class Progress(Protocol):
    """Is told how much was read."""

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Say how much of the files was read."""


def read_trace(path: Path, paths: Sequence[Path], progress: Progress) -> Trace:
    """Read the XSpace files of one run, which were found at a path.

    Raises:
        AdvisorError: a file is corrupt, or no device is seen at work.
    """
    files = [SpaceFile(file) for file in _distinct(paths)]
    run = str(files[0].path.parent if path.is_dir() else path)
    builder = TraceBuilder()
    total, done = sum(file.size_bytes for file in files), 0

    def advance(read_bytes: int) -> None:
        nonlocal done
        done += read_bytes
        progress(done, total)

    several = len(files) > 1
    found = [GpuPlanes(file, f"{_host(file)}/" if several else "", builder) for file in files]
    if any(plane.lines for gpus in found for plane in gpus.planes.values()):
        starts, steps_from = _read_gpus(list(zip(files, found, strict=True)), advance)
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
    run: str, files: Sequence[SpaceFile], builder: TraceBuilder, advance: Callable[[int], None]
) -> Trace:
    """Read processes that compute themselves, and one that asked them to, if there is one."""
    steps = outermost(
        span for file in files for span in read_marks(file, launches=False).steps.pairs()
    )
    processes = [
        process
        for file in files
        if (process := read_process(file, _host(file), builder, advance)) is not None
    ]
    if not processes:
        raise AdvisorError(
            f"the profile {run} shows no device at work",
            hint="profile some steps while they run",
        )
    spans = steps.pairs()
    cuts = [*steps.start.tolist(), int(steps.end[-1])] if spans else []
    copies = copies_between(processes, cuts, builder)
    return builder.build(
        run,
        cuts,
        "step marks",
        waits(processes, copies, spans[1:] if len(spans) > 1 else spans),
    )


def _read_gpus(
    files: Sequence[tuple[SpaceFile, GpuPlanes]], advance: Callable[[int], None]
) -> tuple[list[int], str]:
    """Read all GPUs; return the moments that cut their time into steps, and whence they are."""
    grouped = any(
        _GROUP in plane.stat_names.values() for _, gpus in files for plane in gpus.planes.values()
    )
    steps: dict[int, tuple[int, int]] = {}
    marked: list[tuple[int, int]] = []
    for file, gpus in files:
        if grouped:
            found = gpus.read(_GROUP, lambda keys: keys, advance)
        else:
            marks = read_marks(file, launches=True)
            marked += marks.steps.pairs()
            found = gpus.read(CORRELATION, marks.step_of, advance)
        for step, (first_ns, last_ns) in found.items():
            widen(steps, step, first_ns, last_ns)
    spans = sorted(steps.values()) or sorted(marked)
    if not spans:
        return [], "none"
    cuts = [*(first_ns for first_ns, _ in spans), max(last_ns for _, last_ns in spans)]
    return cuts, "group_id" if grouped else "step marks"
