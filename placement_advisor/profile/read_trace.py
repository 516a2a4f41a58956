"""From a path to a trace: finds the files of a profile and reads what wrote them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.gpu_trace import GpuPlanes
from placement_advisor.profile.marks import CORRELATION, read_marks
from placement_advisor.profile.recorded_files import profile_files
from placement_advisor.profile.space_file import SpaceFile
from placement_advisor.profile.trace import TraceBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from placement_advisor.profile.trace import Trace

_GROUP = "group_id"


class Progress(Protocol):
    """Is told how much was read."""

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        """Say how much of the files was read."""


def read_trace(path: Path, progress: Progress) -> Trace:
    """Read a profile: an ``.xplane.pb`` file, a run folder, or a logdir, of which the newest run.

    Raises:
        AdvisorError: there is no profile, a file is corrupt, or no device is seen at work.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(SpaceFile(file)) for file in profile_files(path)]
        builder = TraceBuilder()
        several = len(files) > 1
        found = [GpuPlanes(file, f"{_host(file)}/" if several else "", builder) for file in files]
        if not any(plane.lines for gpus in found for plane in gpus.planes.values()):
            raise AdvisorError(
                f"the profile {path} shows no GPU at work",
                hint="profile some steps while they run on GPUs",
            )
        starts, steps_from = _read_gpus(list(zip(files, found, strict=True)), progress)
        return builder.build(str(path), starts, steps_from)


def _host(file: SpaceFile) -> str:
    return file.path.name.removesuffix(".xplane.pb")


def _read_gpus(
    files: Sequence[tuple[SpaceFile, GpuPlanes]], progress: Progress
) -> tuple[list[int], str]:
    """Read all GPUs; return the moments that cut their time into steps, and whence they are."""
    total, done = sum(file.size_bytes for file, _ in files), 0

    def advance(read_bytes: int) -> None:
        nonlocal done
        done += read_bytes
        progress(done, total)

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
            marked += zip(marks.steps.start.tolist(), marks.steps.end.tolist(), strict=True)
            found = gpus.read(CORRELATION, marks.step_of, advance)
        for step, (first_ns, last_ns) in found.items():
            known_first, known_last = steps.get(step, (first_ns, last_ns))
            steps[step] = min(first_ns, known_first), max(last_ns, known_last)
    spans = sorted(steps.values()) or sorted(marked)
    if not spans:
        return [], "none"
    cuts = [*(first_ns for first_ns, _ in spans), max(last_ns for _, last_ns in spans)]
    return sorted(set(cuts)), "group_id" if grouped else "step marks"
