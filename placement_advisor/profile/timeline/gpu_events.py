"""What GPUs show of each step in a profile: the work of their streams.

Written from the names and details that TensorFlow, CUPTI and XProf give to events, and tested on
profiles built by hand: it has never been run on a real GPU.

Only streams count; lines that XProf derives from them would count the same work again. All work
of a stream that is no copy is compute, memsets included, and so is a copy within one card: it
moves nothing between devices. It keeps its own row in the activity table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.profile.step_profile import Work
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.gpu_streams import GpuPlane, gpu_planes, is_stream
from placement_advisor.profile.timeline.step_windows import OP_EVENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.gpu_streams import Stream
    from placement_advisor.profile.timeline.step_windows import StepWindows
    from placement_advisor.profile.xspace.space_file import SpaceFile

    Ints = NDArray[np.int64]

_OP = "tf_op"


def gpu_streams(file: SpaceFile, name_of: Mapping[int, str]) -> Iterator[tuple[str, Stream]]:
    """Yield the streams of the GPUs that have a name, by their numbers, each with that name.

    Raises:
        AdvisorError: a line is corrupt.
    """
    for number, plane in gpu_planes(file).items():
        if number not in name_of:
            continue
        here = name_of[number]
        gpu = GpuPlane(file, plane, here, lambda other: name_of.get(other, f"GPU:{other}"))
        for line in plane.lines:
            if is_stream(line):
                yield here, gpu.read(line, of_all=(_OP,))


def gather_gpu_work(here: str, stream: Stream, windows: StepWindows, *, ahead_ns: int = 0) -> None:
    """Put what a stream of the device ``here`` computed into the steps in which it began.

    Its clock is ``ahead_ns`` ahead of that of the steps.
    """
    for place, start_ns, end_ns in listed(stream, np.flatnonzero(stream.is_compute)):
        op = OP_EVENT.fullmatch(str(stream.stats.get(place, {}).get(_OP, "")))
        row = stream.names[stream.name[place]]
        _add(windows, here, op[1] if op else None, row, start_ns - ahead_ns, end_ns - ahead_ns)
    for route, places in stream.copied.items():
        if route.kind is CopyKind.DEVICE_TO_DEVICE:
            for _, start_ns, end_ns in listed(stream, places):
                _add(windows, here, None, route.kind, start_ns - ahead_ns, end_ns - ahead_ns)


def listed(stream: Stream, places: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield the place, the start and the end of events."""
    for place, (start_ns, end_ns) in zip(
        places.tolist(), stream.spans(places).pairs(), strict=True
    ):
        yield place, start_ns, end_ns


def _add(
    windows: StepWindows, device: str, op: str | None, row: str, start_ns: int, end_ns: int
) -> None:
    step = windows.at(start_ns)
    if step is not None:
        step.work.append(
            Work(
                device=device,
                op=op,
                row=row,
                start_ns=start_ns,
                end_ns=end_ns,
                own_ns=end_ns - start_ns,
            )
        )
