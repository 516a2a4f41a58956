"""Profiles of workers, on one machine or several, are read as steps of the placed model.

The step marks of the client cut the profiles of all workers; replicas under `tf.distribute`
mark their own steps. On several hosts, clocks are aligned first. Each host's clock is ahead
of the reference by an offset that hardly changes during a profile. Pings bound the offset,
and every copy narrows it: no copy arrives before it was sent.

Peak memory is the sum of the profiler's ``MemoryAllocation`` and ``MemoryDeallocation``
events. It is counted from the least that was held, which leaves out variables and whatever
else is held between steps.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, permutations, product
from operator import itemgetter
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import CONTROL_PORT
from placement_advisor.machine.clock_range import ClockRange, drifted_ns
from placement_advisor.measurement import measurement as measurements
from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.gpu_planes import gather_gpu_work, gpu_streams
from placement_advisor.profile.xplane import Line, space_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


# The clock that all others are compared with, among the hosts.
_REFERENCE = None
# By how much the second host's clock is ahead of the first one's at most.
_Constraints = dict[tuple[str | None, str | None], int]


class TimedCopy(NamedTuple):
    """Something that got from one host to another, on the clock that is taken to be the command's.

    Hosts without a clock of their own are None.
    """

    source: str | None
    target: str | None
    sent_ns: int
    arrived_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClocks:
    """Whose clocks profiles were taken by, and what is known of these.

    ``host_of`` has the hosts of devices. ``ranges`` has how far the clock of each host was ahead of
    the command's while the profile was taken; devices and hosts that are missing have
    the command's own. ``client`` is the device whose process asked for the steps, empty for the
    command's.

    ``contradiction_ns`` is 0 if offsets within ``ranges`` explain all that was seen. Else it is the
    least by which every single constraint has to be loosened; the ranges are wider by it.
    """

    host_of: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, ClockRange] = field(default_factory=dict)
    client: str = ""
    contradiction_ns: int = 0

    def host_with_clock(self, device: str) -> str | None:
        """Return the host of a device if its clock is not the command's, else None."""
        host = self.host_of.get(device)
        return host if host in self.ranges else None

    def ahead_ns(self, device: str) -> int:
        """Return what the clock of a device is taken to be ahead of the command's."""
        host = self.host_with_clock(device)
        return 0 if host is None else self.ranges[host].offset_ns


ONE_CLOCK = HostClocks()


def align_clocks(clocks: HostClocks, copies: Iterable[TimedCopy]) -> HostClocks:
    """Narrow what pings told of the clocks of hosts by the copies of a profile.

    The ranges of pings hold at the middle of the profile; those that are returned hold for all of
    it.
    """
    seen = [*copies]
    moments = [moment for copy in seen for moment in (copy.sent_ns, copy.arrived_ns)] or [0]
    middle_ns = (min(moments) + max(moments)) // 2
    reach_ns = drifted_ns(max(moments) - middle_ns)
    # An offset here is one from the middle of the range of pings.
    limits: _Constraints = {}
    for host, found in clocks.ranges.items():
        limits[_REFERENCE, host] = found.high_ns - found.offset_ns
        limits[host, _REFERENCE] = found.offset_ns - found.low_ns
    for copy in seen:
        if copy.source == copy.target:
            continue
        away_ns = max(abs(copy.sent_ns - middle_ns), abs(copy.arrived_ns - middle_ns))
        limit_ns = copy.arrived_ns - copy.sent_ns + drifted_ns(away_ns)
        pair = copy.source, copy.target
        limits[pair] = min(limit_ns, limits.get(pair, limit_ns))
    hosts = (_REFERENCE, *clocks.ranges)
    loosened_ns = _contradiction_ns(hosts, limits)
    paths = _shortest_paths(hosts, limits, loosened_ns)
    assert paths is not None, "loosened constraints agree"
    ranges = {
        host: ClockRange(
            low_ns=found.offset_ns - paths[host, _REFERENCE],
            high_ns=found.offset_ns + paths[_REFERENCE, host],
        ).widened(loosened_ns + reach_ns)
        for host, found in clocks.ranges.items()
    }
    return replace(clocks, ranges=ranges, contradiction_ns=loosened_ns)


def _contradiction_ns(hosts: Sequence[str | None], limits: _Constraints) -> int:
    """Return the least by which all limits have to be loosened until they agree."""
    if _shortest_paths(hosts, limits, 0) is not None:
        return 0
    # A cycle of constraints is no worse than its worst one: loosened by that, none is negative.
    too_little_ns, enough_ns = 0, -min(limits.values())
    while enough_ns - too_little_ns > 1:
        middle_ns = (too_little_ns + enough_ns) // 2
        if _shortest_paths(hosts, limits, middle_ns) is None:
            too_little_ns = middle_ns
        else:
            enough_ns = middle_ns
    return enough_ns


def _shortest_paths(
    hosts: Sequence[str | None], limits: _Constraints, loosened_ns: int
) -> _Constraints | None:
    """Return by how much each clock is ahead of each other at most; None for a contradiction.

    Source: Cormen et al., Introduction to Algorithms, difference constraints; Floyd & Warshall.
    """
    paths = {pair: limit_ns + loosened_ns for pair, limit_ns in limits.items()}
    paths |= {(host, host): 0 for host in hosts}
    for via, source, target in product(hosts, repeat=3):
        if (source, via) in paths and (via, target) in paths:
            way_ns = paths[source, via] + paths[via, target]
            paths[source, target] = min(way_ns, paths.get((source, target), way_ns))
    return None if any(paths[host, host] < 0 for host in hosts) else paths


ALLOCATION = "MemoryAllocation"
RELEASE = "MemoryDeallocation"


def measured_memory(lines: Iterable[Line], windows: profile_steps.StepWindows) -> tuple[int, ...]:
    """Return the most bytes above the level that each step in the windows had asked for.

    Steps in which nothing was reported are left out.
    """
    changes = sorted(_changes(lines), key=itemgetter(0))
    held = list(accumulate(size_bytes for _, size_bytes in changes))
    # The level between steps: a step gives back what it took, though its last releases may come
    # when it has ended for the client.
    level = min(held, default=0)
    peaks: dict[int, int] = {}
    for (at_ns, _), held_bytes in zip(changes, held, strict=True):
        step = windows.at(at_ns)
        if step is not None:
            peaks[step.start_ns] = max(held_bytes - level, peaks.get(step.start_ns, 0))
    return tuple(peaks.values())


def _changes(lines: Iterable[Line]) -> Iterator[tuple[int, int]]:
    """Yield when a piece came, and its size; one that went has a negative size."""
    for line in lines:
        for event in line.events:
            if event.name in (ALLOCATION, RELEASE):
                size_bytes = int(event.stats.get("requested_bytes", 0))
                yield event.start_ns, -size_bytes if event.name == RELEASE else size_bytes


COPY_ROW = CopyKind.WORKER
# A worker on a GPU sees no other one.
_ONLY_GPU = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCopy:
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
    crossings: Sequence[PlannedCopy],
    exchanged_bytes: Mapping[str, int | None] = MappingProxyType({}),
    clocks: HostClocks = ONE_CLOCK,
    *,
    on_gpus: bool = False,
) -> measurements.StepProfile:
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
    read = partial(_steps, client_file, worker_files, exchanged_bytes, on_gpus=on_gpus)
    moments = partial(_moments, crossings=crossings, on_gpus=on_gpus)
    steps, memory = read(clocks)
    if clocks.ranges:
        clocks = align_clocks(clocks, _seen_copies(steps, moments, clocks))
        steps, memory = read(clocks)
    for step in steps:
        step.copies.extend(_copies(moments(step)))
    if crossings and not any(step.copies for step in steps):
        paths = ", ".join(str(path) for path in worker_files.values())
        raise AdvisorError(
            f"none of the {len(crossings)} planned copies is in the profiles {paths}"
        )
    devices = tuple(worker_files)
    return replace(
        profile_steps.summarise(steps, devices),
        unseen_copies=_unseen(steps, devices, crossings, exchanged_bytes),
        step_memory_bytes=memory,
        clocks={
            device: clocks.ranges[host]
            for device in devices
            if (host := clocks.host_with_clock(device)) is not None
        },
        clock_contradiction_ns=clocks.contradiction_ns,
    )


def _steps(
    client_file: Path,
    worker_files: Mapping[str, Path],
    exchanged_bytes: Mapping[str, int | None],
    clocks: HostClocks,
    *,
    on_gpus: bool,
) -> tuple[list[profile_steps.RecordedStep], dict[str, int]]:
    """Return the steps on the command's clock, and what each device held in one, in bytes.

    Raises:
        AdvisorError: a file is missing or corrupt, or no step is complete.
    """
    client = space_file(client_file, clocks.ahead_ns(clocks.client))
    asked = covered = profile_steps.step_windows(client)
    threads, windows = {}, {}
    devices = tuple(worker_files)
    for device, path in worker_files.items():
        file = space_file(path, clocks.ahead_ns(device))
        threads[device] = lines = profile_steps.host_lines(file)
        windows[device] = own = asked.marked_by(lines, path).covered_by(file.planes)
        covered = covered.shared_with(own)
        profile_steps.gather_events(
            device, lines, own, devices, exchanged_bytes, on_core=not on_gpus
        )
        if on_gpus:
            for _, stream in gpu_streams(file, {_ONLY_GPU: device}):
                gather_gpu_work(device, stream, own)
    steps = covered.with_work(client_file)
    if on_gpus:
        return steps, {}
    memory = {
        device: measured_memory(lines, windows[device].shared_with(covered))
        for device, lines in threads.items()
    }
    return steps, {device: round(median(held)) for device, held in memory.items() if held}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """When the ends of one crossing were seen in a step, each in order of time.

    ``starts`` are the moments at which it was sent, and those at which the op ended that makes the
    tensor; what counts if it is known comes first.
    """

    crossing: PlannedCopy
    starts: tuple[Sequence[int], Sequence[int]]
    arrivals: Sequence[int]


def _moments(
    step: profile_steps.RecordedStep, crossings: Iterable[PlannedCopy], *, on_gpus: bool
) -> Iterator[_Moments]:
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


def _copies(moments: Iterable[_Moments]) -> Iterator[profile_steps.Copy]:
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
            yield profile_steps.Copy(
                source=crossing.source,
                target=crossing.target,
                waiting=crossing.target,
                tensor=profile_steps.tensor_name(crossing.producer, crossing.port),
                row=COPY_ROW,
                size_bytes=0 if crossing.port == CONTROL_PORT else crossing.size_bytes,
                size_basis=measurements.SizeBasis.SHAPES,
                start_ns=start_ns,
                # A clock may be set back in between, or be known only roughly; a copy cannot
                # arrive before it was sent.
                end_ns=max(start_ns, arrival_ns),
            )


def _seen_copies(
    steps: Iterable[profile_steps.RecordedStep],
    moments_in: Callable[[profile_steps.RecordedStep], Iterable[_Moments]],
    clocks: HostClocks,
) -> Iterator[TimedCopy]:
    """Yield what got from host to host, as the clocks have it that the steps were read by.

    A tensor whose sends are not all in the profile says nothing: which arrival belongs to which?
    A collective ends on no device before it has begun on all.
    """
    clock = clocks.host_with_clock
    for step in steps:
        for moments in moments_in(step):
            source, target = moments.crossing.source, moments.crossing.target
            complete = (starts for starts in moments.starts if len(starts) == len(moments.arrivals))
            for sent_ns, arrived_ns in zip(next(complete, ()), moments.arrivals, strict=False):
                yield TimedCopy(clock(source), clock(target), sent_ns, arrived_ns)
        joined: defaultdict[str, defaultdict[str, list[profile_steps.Copy]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for copy in step.copies:
            if copy.row == profile_steps.COLLECTIVE_ROW:
                joined[copy.tensor][copy.target].append(copy)
        for of_devices in joined.values():
            if len({len(runs) for runs in of_devices.values()}) > 1:
                continue
            for source, target in permutations(of_devices, 2):
                for sent, done in zip(of_devices[source], of_devices[target], strict=True):
                    yield TimedCopy(clock(source), clock(target), sent.start_ns, done.end_ns)


def _unseen(
    steps: Iterable[profile_steps.RecordedStep],
    devices: Sequence[str],
    crossings: Iterable[PlannedCopy],
    exchanges: Iterable[str],
) -> tuple[str, ...]:
    """Return the copies that every step makes and no step shows, each with where it goes."""
    planned = [
        *((profile_steps.tensor_name(each.producer, each.port), each.target) for each in crossings),
        *((name, device) for name in exchanges for device in devices),
    ]
    seen = {(copy.tensor, copy.target) for step in steps for copy in step.copies}
    missing = (each for each in dict.fromkeys(planned) if each not in seen)
    return tuple(f"{tensor} to {target}" for tensor, target in missing)
