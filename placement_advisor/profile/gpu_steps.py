"""What ran in each profiled step of one process with several GPUs.

What counts as work of a GPU, and that none of this has run on a real one, says `gpu_events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.step_profile import Copy, summarise
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.device_trace import UNKNOWN_BYTES
from placement_advisor.profile.timeline.gpu_events import gather_gpu_work, gpu_streams, listed
from placement_advisor.profile.timeline.step_windows import HOST_PLANE, step_windows
from placement_advisor.profile.xspace.xplane import plane_as_objects, space_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.profile.timeline.gpu_streams import Stream
    from placement_advisor.profile.timeline.step_windows import StepWindows


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
    for here, stream in gpu_streams(file, name_of):
        gather_gpu_work(here, stream, windows)
        _gather_copies(here, stream, windows, device_names)
    steps = windows.with_work(xplane)
    return summarise([step.closed() for step in steps], tuple(device_names))


def _gather_copies(
    here: str, stream: Stream, windows: StepWindows, device_names: Mapping[str, int]
) -> None:
    """Put what a stream of the device ``here`` copied into the steps in which it began."""
    for route, places in stream.copied.items():
        if route.kind is CopyKind.DEVICE_TO_DEVICE:
            continue
        waiting = route.target if route.target in device_names else here
        for place, start_ns, end_ns in listed(stream, places):
            step = windows.at(start_ns)
            if step is None:
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
