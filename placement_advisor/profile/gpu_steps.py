"""What ran in each profiled step of one process with several GPUs.

Written from the names and details that TensorFlow, CUPTI and XProf give to events, and tested on
profiles built by hand: it has never been run on a real GPU.

Only streams count; lines that XProf derives from them would count the same work again. All work
of a stream that is no copy is compute, memsets included, and so is a copy within one card: it
moves nothing between devices. It keeps its own row in the activity table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from placement_advisor.profile.copies import CopyKind, copied_bytes, destination
from placement_advisor.profile.streams import copy_details, copy_direction, stream_events
from placement_advisor.profile.summary import Copy, Work, summarise
from placement_advisor.profile.trace import HOST, UNKNOWN_END
from placement_advisor.profile.windows import OP_EVENT, step_windows
from placement_advisor.profile.xplane import read_planes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from placement_advisor.measure import StepProfile
    from placement_advisor.profile.xplane import Event

COLLECTIVE = "collective"

_GPU_PLANE = re.compile(r"/device:GPU:(\d+)")


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
    planes = read_planes(xplane)
    windows = step_windows(planes, xplane)
    name_of = {number: device for device, number in device_names.items()}
    for plane in planes:
        match = _GPU_PLANE.fullmatch(plane.name)
        if match is None or int(match.group(1)) not in name_of:
            continue
        number = int(match.group(1))
        for event in stream_events(plane):
            step = windows.at(event.start_ns)
            if step is None:
                continue
            kind = copy_direction(event, number)
            if kind is None or kind is CopyKind.DEVICE_TO_DEVICE:
                step.work.append(_work(event, kind, name_of[number]))
            else:
                step.copies.append(_copy(event, kind, name_of[number], name_of))
    steps = windows.with_work(xplane)
    return summarise([step.closed() for step in steps], tuple(device_names))


def _work(event: Event, kind: CopyKind | None, device: str) -> Work:
    op = OP_EVENT.fullmatch(str(event.stats.get("tf_op", ""))) if kind is None else None
    return Work(
        device=device,
        op=op.group(1) if op else None,
        row=kind or event.name,
        start_ns=event.start_ns,
        end_ns=event.end_ns,
        own_ns=event.duration_ns,
    )


def _copy(event: Event, kind: CopyKind, device: str, name_of: Mapping[int, str]) -> Copy:
    receiver = destination(copy_details(event))
    peer = UNKNOWN_END if receiver is None else name_of.get(receiver, f"GPU:{receiver}")
    source, target = {
        CopyKind.HOST_TO_DEVICE: (HOST, device),
        CopyKind.DEVICE_TO_HOST: (device, HOST),
        CopyKind.HOST_TO_HOST: (HOST, HOST),
        CopyKind.PEER: (device, peer),
        CopyKind.COLLECTIVE: (device, COLLECTIVE),
        CopyKind.UNCLASSIFIED: (device, UNKNOWN_END),
    }[kind]
    return Copy(
        source=source,
        target=target,
        waiting=target if target in name_of.values() else device,
        tensor=str(event.stats.get("edge_name", kind)),
        row=kind,
        size_bytes=copied_bytes(copy_details(event)),
        start_ns=event.start_ns,
        end_ns=event.end_ns,
    )
