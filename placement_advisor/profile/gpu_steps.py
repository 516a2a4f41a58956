"""What ran in each profiled step of one process with several GPUs.

Written from the names and details that TensorFlow, CUPTI and XProf give to events, and tested on
profiles built by hand: it has never been run on a real GPU.

Only streams count; lines that XProf derives from them would count the same work again. All work
of a stream that is no copy is compute, memsets included, and so is a copy within one card: it
moves nothing between devices. It keeps its own row in the activity table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.step_profile import Copy, Work, summarise
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES
from placement_advisor.profile.timeline.gpu_streams import GpuPlane, gpu_planes, is_stream
from placement_advisor.profile.timeline.step_windows import HOST_PLANE, OP_EVENT, step_windows
from placement_advisor.profile.xspace.xplane import plane_as_objects, space_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.profile.timeline.gpu_streams import Stream
    from placement_advisor.profile.timeline.step_windows import StepWindows

    Ints = NDArray[np.int64]

_OP = "tf_op"


def read_gpu_steps(xplane: Path, device_names: Mapping[str, int]) -> StepProfile:
    """Read a profile with several GPUs; never run on a real GPU so far.

    ``device_names`` maps devices to the numbers of their GPU planes. A step must wait for its GPU
    work before it ends: what starts later is not counted. A copy from or to the host has ``host``
    at that end, one that no known spelling classifies ends at ``unknown``, an NCCL kernel at
    ``collective``; these are exposed while the GPU that lists them computes nothing, as no device
    here is known to wait for them.

    Raises:
        AdvisorError: the file is missing or corrupt, or no step in it holds GPU work.
    """
    file = space_file(xplane)
    hosts = [plane_as_objects(file, plane) for plane in file.planes if plane.name == HOST_PLANE]
    windows = step_windows(hosts, xplane)
    name_of = {number: device for device, number in device_names.items()}
    for number, plane in gpu_planes(file).items():
        if number not in name_of:
            continue
        here = name_of[number]
        gpu = GpuPlane(file, plane, here, lambda other: name_of.get(other, f"GPU:{other}"))
        for line in plane.lines:
            if is_stream(line):
                _fill(windows, gpu.read(line, of_all=(_OP,)), here, device_names)
    steps = windows.with_work(xplane)
    return summarise([step.closed() for step in steps], tuple(device_names))


def _fill(windows: StepWindows, stream: Stream, here: str, device_names: Mapping[str, int]) -> None:
    """Put what a stream of the device ``here`` did into the steps in which it began."""
    for place, start_ns, end_ns in _listed(stream, np.flatnonzero(stream.is_compute)):
        step = windows.at(start_ns)
        if step is not None:
            op = OP_EVENT.fullmatch(str(stream.stats.get(place, {}).get(_OP, "")))
            name = stream.names[stream.name[place]]
            step.work.append(_work(here, op[1] if op else None, name, start_ns, end_ns))
    for route, places in stream.copied.items():
        waiting = route.target if route.target in device_names else here
        for place, start_ns, end_ns in _listed(stream, places):
            step = windows.at(start_ns)
            if step is None:
                continue
            if route.kind is CopyKind.DEVICE_TO_DEVICE:
                step.work.append(_work(here, None, route.kind, start_ns, end_ns))
                continue
            size_bytes, tensor = int(stream.size_bytes[place]), int(stream.tensor[place])
            step.copies.append(
                Copy(
                    source=route.source,
                    target=route.target,
                    waiting=waiting,
                    tensor=route.kind if tensor < 0 else stream.tensors[tensor],
                    row=route.kind,
                    size_bytes=None if size_bytes == UNKNOWN_BYTES else size_bytes,
                    size_basis=SizeBasis.PROFILE,
                    start_ns=start_ns,
                    end_ns=end_ns,
                )
            )


def _listed(stream: Stream, places: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield the place, the start and the end of events."""
    for place, (start_ns, end_ns) in zip(
        places.tolist(), stream.spans(places).pairs(), strict=True
    ):
        yield place, start_ns, end_ns


def _work(device: str, op: str | None, row: str, start_ns: int, end_ns: int) -> Work:
    return Work(
        device=device, op=op, row=row, start_ns=start_ns, end_ns=end_ns, own_ns=end_ns - start_ns
    )
