"""What ran in each profiled step of worker processes, on one machine or several.

The steps of the client cut the profiles of all workers; copies of a model under `tf.distribute`
mark steps of their own, which cut each one's profile. On one machine all profiles share its clock.
On several, those of other hosts are first put onto the command's clock as pings told of it, which
cuts them right: a worker's part of a step begins at least as long after the step as a question
takes to get there, and ends as long before as an answer does. What then crosses between hosts tells
more of their clocks (`clock_alignment`), and all is cut once more.

No copy's bytes are in a profile of a CPU: those come from the shapes in the graph.

A device that is a GPU has the work of its streams, and its process the copies: a tensor goes to
another device by a copy to its host, messages, and a copy from the host there, which count as one
copy. It begins when the kernels that make the tensor have ended: ops are launched ahead of that.

Left out: what `worker_events`, `gpu_events` and `clock_alignment` leave out; between a GPU and its
own host, ops that run there and other copies, such as of a batch; the memory of GPUs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import CONTROL_PORT
from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.profile.step_profile import Copy, summarise, tensor_name
from placement_advisor.profile.timeline.allocator_memory import measured_memory
from placement_advisor.profile.timeline.clock_alignment import ONE_CLOCK, SeenCopy, align_clocks
from placement_advisor.profile.timeline.copy_kinds import CopyKind
from placement_advisor.profile.timeline.gpu_events import gather_gpu_work, gpu_streams
from placement_advisor.profile.timeline.step_windows import host_lines, step_windows
from placement_advisor.profile.timeline.worker_events import COLLECTIVE_ROW, gather_events
from placement_advisor.profile.xspace.xplane import read_planes, set_back, space_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.machine.clock_range import ClockRange
    from placement_advisor.measurement.measurement import StepProfile
    from placement_advisor.profile.step_profile import RecordedStep
    from placement_advisor.profile.timeline.clock_alignment import HostClocks
    from placement_advisor.profile.timeline.step_windows import OpenStep

COPY_ROW = CopyKind.WORKER
# A worker on a GPU sees no other one.
_ONLY_GPU = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """One planned copy, from the partition graphs that were executed.

    ``send_node`` and ``recv_node`` are the nodes that TensorFlow put in. Port -1 is a control edge,
    which carries no bytes.
    """

    send_node: str
    recv_node: str
    producer: str
    port: int
    source: str
    target: str
    size_bytes: int | None


def read_worker_steps(
    worker_files: Mapping[str, Path],
    client_file: Path,
    crossings: Sequence[Crossing],
    exchanged_bytes: Mapping[str, int | None] = MappingProxyType({}),
    clocks: HostClocks = ONE_CLOCK,
    *,
    on_gpus: bool = False,
) -> StepProfile:
    """Read the profiles of the workers, one per device; the steps are those of the client.

    With ``on_gpus`` each worker has one GPU, which is the device.

    ``exchanged_bytes`` has the collective ops that each device runs in every step, with what one
    sends on from a device, None where that is not known. More may be seen, in conditionals.

    A copy lasts from the start of its ``_Send`` to the moment at which the receiving executor
    goes on: the way through both processes and the wait for a busy core are part of it.
    It counts as soon as it is seen to arrive. Steps in
    which no op ran, or which a worker's profile covers only in part, are skipped.

    Raises:
        AdvisorError: a file is missing or corrupt, no complete step is left, or none of the
            planned copies was seen.
    """
    files = _Files(client_file, worker_files, exchanged_bytes, clocks, on_gpus=on_gpus)
    steps, memory = files.steps(clocks.ranges)
    moments = partial(_moments, crossings=crossings, on_gpus=on_gpus)
    if not clocks.ranges:
        return _profile(steps, memory, worker_files, crossings, exchanged_bytes, moments)
    alignment = align_clocks(clocks.ranges, _seen_copies(steps, moments, clocks))
    steps, memory = files.steps(alignment.ranges)
    return replace(
        _profile(steps, memory, worker_files, crossings, exchanged_bytes, moments),
        clocks={
            device: alignment.ranges[host]
            for device, host in clocks.host_of.items()
            if host in alignment.ranges and device in worker_files
        },
        clock_contradiction_ns=alignment.contradiction_ns,
    )


class _Files:
    """The profiles of a client and its workers, to be cut into steps on any clocks."""

    def __init__(
        self,
        client_file: Path,
        worker_files: Mapping[str, Path],
        exchanged_bytes: Mapping[str, int | None],
        clocks: HostClocks,
        *,
        on_gpus: bool,
    ) -> None:
        """Read them.

        Raises:
            AdvisorError: a file is missing or corrupt.
        """
        self._on_gpus = on_gpus
        self._client_file, self._worker_files = client_file, worker_files
        self._exchanged_bytes, self._clocks = exchanged_bytes, clocks
        self._client = read_planes(client_file)
        self._workers = {device: read_planes(path) for device, path in worker_files.items()}
        self._streams = {
            device: tuple(gpu_streams(space_file(path), {_ONLY_GPU: device})) if on_gpus else ()
            for device, path in worker_files.items()
        }

    def steps(self, ranges: Mapping[str, ClockRange]) -> tuple[list[OpenStep], dict[str, int]]:
        """Return the steps on the command's clock, and what each device held in one, in bytes.

        ``ranges`` has how far the clocks of hosts are ahead of that.

        Raises:
            AdvisorError: no step is complete.
        """
        clocks = replace(self._clocks, ranges=ranges)
        client = set_back(self._client, clocks.client_ahead_ns)
        asked = covered = step_windows(client, self._client_file)
        threads, windows = {}, {}
        for device, recorded in self._workers.items():
            planes = set_back(recorded, clocks.ahead_ns(device))
            own = asked.marked_by(planes, self._worker_files[device]).covered_by(planes)
            windows[device] = own
            covered = covered.shared_with(own)
            threads[device] = tuple(host_lines(planes))
            devices = tuple(self._workers)
            gather_events(
                device,
                threads[device],
                own,
                devices,
                self._exchanged_bytes,
                on_core=not self._on_gpus,
            )
            for _, stream in self._streams[device]:
                gather_gpu_work(device, stream, own, ahead_ns=clocks.ahead_ns(device))
        steps = covered.with_work(self._client_file)
        if self._on_gpus:
            return steps, {}
        memory = {
            device: measured_memory(lines, windows[device].shared_with(covered))
            for device, lines in threads.items()
        }
        return steps, {device: round(median(held)) for device, held in memory.items() if held}


def _profile(
    steps: Sequence[OpenStep],
    memory: Mapping[str, int],
    worker_files: Mapping[str, Path],
    crossings: Sequence[Crossing],
    exchanged_bytes: Mapping[str, int | None],
    moments: Callable[[OpenStep], Iterable[_Moments]],
) -> StepProfile:
    for step in steps:
        step.copies.extend(_copies(moments(step)))
    if crossings and not any(step.copies for step in steps):
        paths = ", ".join(str(path) for path in worker_files.values())
        raise AdvisorError(
            f"none of the {len(crossings)} planned copies is in the profiles {paths}"
        )
    closed = [step.closed() for step in steps]
    return replace(
        summarise(closed, tuple(worker_files)),
        unseen_copies=_unseen(closed, tuple(worker_files), crossings, exchanged_bytes),
        step_memory_bytes=memory,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """When the ends of one crossing were seen in a step, each in order of time.

    ``starts`` are the moments at which it was sent, and those at which the op ended that makes the
    tensor; what counts if it is known comes first.
    """

    crossing: Crossing
    starts: tuple[Sequence[int], Sequence[int]]
    arrivals: Sequence[int]


def _moments(step: OpenStep, crossings: Iterable[Crossing], *, on_gpus: bool) -> Iterator[_Moments]:
    ends: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for work in step.work:
        ends[work.device, work.op].append(work.end_ns)
    for crossing in crossings:
        sends = sorted(step.sends.get((crossing.source, crossing.send_node), ()))
        made = sorted(ends.get((crossing.source, crossing.producer), ()))
        yield _Moments(
            crossing=crossing,
            # A GPU's op may have several kernels, and its host sends as soon as they are launched.
            starts=(made[-1:], sends) if on_gpus else (sends, made),
            arrivals=sorted(step.arrivals.get((crossing.target, crossing.recv_node), ())),
        )


def _copies(moments: Iterable[_Moments]) -> Iterator[Copy]:
    """Pair the sends of each crossing with its arrivals, in order of time.

    TensorFlow records no event of an op that it has found to be cheap, and sending a few bytes is:
    such a copy starts when the op ended that made the tensor, or, where that was cheap as well, is
    counted with no time of its own.
    """
    for seen in moments:
        crossing = seen.crossing
        for i, arrival_ns in enumerate(seen.arrivals):
            starts = (found[i] for found in seen.starts if i < len(found))
            start_ns = next(starts, arrival_ns)
            yield Copy(
                source=crossing.source,
                target=crossing.target,
                waiting=crossing.target,
                tensor=tensor_name(crossing.producer, crossing.port),
                row=COPY_ROW,
                size_bytes=0 if crossing.port == CONTROL_PORT else crossing.size_bytes,
                size_basis=SizeBasis.SHAPES,
                start_ns=start_ns,
                # A clock may be set back in between, or be known only roughly; a copy cannot
                # arrive before it was sent.
                end_ns=max(start_ns, arrival_ns),
            )


def _seen_copies(
    steps: Iterable[OpenStep],
    moments_in: Callable[[OpenStep], Iterable[_Moments]],
    clocks: HostClocks,
) -> Iterator[SeenCopy]:
    """Yield what got from host to host, as clocks read it that pings were taken of.

    A tensor whose sends are not all in the profile says nothing: which arrival belongs to which?
    A collective ends on no device before it has begun on all.
    """

    def seen(source: str, sent_ns: int, target: str, arrived_ns: int) -> SeenCopy:
        return SeenCopy(
            source=clocks.host_of.get(source),
            target=clocks.host_of.get(target),
            sent_ns=sent_ns + clocks.ahead_ns(source),
            arrived_ns=arrived_ns + clocks.ahead_ns(target),
        )

    for step in steps:
        for moments in moments_in(step):
            ends = moments.crossing.source, moments.crossing.target
            complete = (starts for starts in moments.starts if len(starts) == len(moments.arrivals))
            for sent_ns, arrived_ns in zip(next(complete, ()), moments.arrivals, strict=False):
                yield seen(ends[0], sent_ns, ends[1], arrived_ns)
        joined: defaultdict[str, defaultdict[str, list[Copy]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for copy in step.copies:
            if copy.row == COLLECTIVE_ROW:
                joined[copy.tensor][copy.target].append(copy)
        for of_devices in joined.values():
            if len({len(runs) for runs in of_devices.values()}) > 1:
                continue
            for source, target in permutations(of_devices, 2):
                for sent, done in zip(of_devices[source], of_devices[target], strict=True):
                    yield seen(source, sent.start_ns, target, done.end_ns)


def _unseen(
    steps: Iterable[RecordedStep],
    devices: Sequence[str],
    crossings: Iterable[Crossing],
    exchanges: Iterable[str],
) -> tuple[str, ...]:
    """Return the copies that every step makes and no step shows, each with where it goes."""
    planned = [
        *((tensor_name(each.producer, each.port), each.target) for each in crossings),
        *((name, device) for name in exchanges for device in devices),
    ]
    seen = {(copy.tensor, copy.target) for step in steps for copy in step.copies}
    missing = (each for each in dict.fromkeys(planned) if each not in seen)
    return tuple(f"{tensor} to {target}" for tensor, target in missing)
