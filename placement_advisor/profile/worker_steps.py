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
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op import CONTROL_PORT
from placement_advisor.machine.clock_range import ClockRange, drifted_ns
from placement_advisor.measurement import measurement as measurements
from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.gpu_planes import gather_gpu_work, gpu_streams
from placement_advisor.profile.xplane import read_planes, set_back, space_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.profile.xplane import Line


# The clock that all others are compared with, among the hosts.
_REFERENCE = None
# By how much the second host's clock is ahead of the first one's at most.
_Constraints = dict[tuple[str | None, str | None], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCopy:
    """Something that got from one host to another, each moment as the clock there read it."""

    source: str | None
    target: str | None
    sent_ns: int
    arrived_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClocks:
    """Whose clocks profiles were taken by, and what pings told of these.

    ``host_of`` has the hosts of devices. ``ranges`` has how far the clock of each host was ahead of
    the command's while the profile was taken; devices and hosts that are missing have
    the command's own. ``client`` is the host of the process that asked for the steps, None for the
    command's.
    """

    host_of: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, ClockRange] = field(default_factory=dict)
    client: str | None = None

    def ahead_ns(self, device: str) -> int:
        """Return what the clock of a device is taken to be ahead of the command's."""
        return self._ahead_ns(self.host_of.get(device))

    @property
    def client_ahead_ns(self) -> int:
        """What the clock of the client is taken to be ahead of the command's."""
        return self._ahead_ns(self.client)

    def _ahead_ns(self, host: str | None) -> int:
        found = None if host is None else self.ranges.get(host)
        return 0 if found is None else found.offset_ns


ONE_CLOCK = HostClocks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The clocks of hosts, and how far what was seen contradicts itself.

    ``contradiction_ns`` is 0 if offsets within ``ranges`` explain everything. Else it is the least
    by which every single constraint has to be loosened; the ranges are wider by it.
    """

    ranges: Mapping[str, ClockRange]
    contradiction_ns: int = 0


def align_clocks(ranges: Mapping[str, ClockRange], copies: Iterable[TimedCopy]) -> Alignment:
    """Narrow what pings told of the clocks of hosts by the copies of a profile.

    Ends of copies that have no range are on the reference's clock. The ranges of pings hold at the
    middle of the profile; those that are returned hold for all of it.
    """
    hosts: tuple[str | None, ...] = (_REFERENCE, *ranges)
    ahead_ns = {host: found.offset_ns for host, found in ranges.items()}
    seen = [_on_one_clock(copy, ahead_ns) for copy in copies]
    moments = [moment for copy in seen for moment in (copy.sent_ns, copy.arrived_ns)] or [0]
    middle_ns = (min(moments) + max(moments)) // 2
    reach_ns = drifted_ns(max(moments) - middle_ns)
    # From here on an offset is one from the middle of the range of pings.
    limits: _Constraints = {}
    for host, found in ranges.items():
        limits[_REFERENCE, host] = found.high_ns - found.offset_ns
        limits[host, _REFERENCE] = found.offset_ns - found.low_ns
    for copy in seen:
        if copy.source == copy.target:
            continue
        away_ns = max(abs(copy.sent_ns - middle_ns), abs(copy.arrived_ns - middle_ns))
        limit_ns = copy.arrived_ns - copy.sent_ns + drifted_ns(away_ns)
        pair = copy.source, copy.target
        limits[pair] = min(limit_ns, limits.get(pair, limit_ns))
    loosened_ns = _contradiction_ns(hosts, limits)
    paths = _shortest_paths(hosts, limits, loosened_ns)
    assert paths is not None, "loosened constraints agree"
    return Alignment(
        ranges={
            host: ClockRange(
                low_ns=ahead_ns[host] - paths[host, _REFERENCE],
                high_ns=ahead_ns[host] + paths[_REFERENCE, host],
            ).widened(loosened_ns + reach_ns)
            for host in ranges
        },
        contradiction_ns=loosened_ns,
    )


def _on_one_clock(copy: TimedCopy, ahead_ns: Mapping[str, int]) -> TimedCopy:
    source = copy.source if copy.source in ahead_ns else _REFERENCE
    target = copy.target if copy.target in ahead_ns else _REFERENCE
    return TimedCopy(
        source=source,
        target=target,
        sent_ns=copy.sent_ns - (ahead_ns[source] if source else 0),
        arrived_ns=copy.arrived_ns - (ahead_ns[target] if target else 0),
    )


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
    files = _Files(client_file, worker_files, exchanged_bytes, clocks, on_gpus=on_gpus)
    moments = partial(_moments, crossings=crossings, on_gpus=on_gpus)
    steps, memory = files.steps(clocks.ranges)
    alignment = Alignment(ranges={})
    if clocks.ranges:
        alignment = align_clocks(clocks.ranges, _seen_copies(steps, moments, clocks))
        steps, memory = files.steps(alignment.ranges)
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
            device: alignment.ranges[host]
            for device, host in clocks.host_of.items()
            if host in alignment.ranges and device in devices
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

    def steps(
        self, ranges: Mapping[str, ClockRange]
    ) -> tuple[list[profile_steps.RecordedStep], dict[str, int]]:
        """Return the steps on the command's clock, and what each device held in one, in bytes.

        ``ranges`` has how far the clocks of hosts are ahead of that.

        Raises:
            AdvisorError: no step is complete.
        """
        clocks = replace(self._clocks, ranges=ranges)
        client = set_back(self._client, clocks.client_ahead_ns)
        asked = covered = profile_steps.step_windows(client, self._client_file)
        threads, windows = {}, {}
        devices = tuple(self._workers)
        for device, recorded in self._workers.items():
            planes = set_back(recorded, clocks.ahead_ns(device))
            own = asked.marked_by(planes, self._worker_files[device]).covered_by(planes)
            windows[device] = own
            covered = covered.shared_with(own)
            threads[device] = tuple(profile_steps.host_lines(planes))
            profile_steps.gather_events(
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
    """Yield what got from host to host, as clocks read it that pings were taken of.

    A tensor whose sends are not all in the profile says nothing: which arrival belongs to which?
    A collective ends on no device before it has begun on all.
    """

    def seen(source: str, sent_ns: int, target: str, arrived_ns: int) -> TimedCopy:
        return TimedCopy(
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
                    yield seen(source, sent.start_ns, target, done.end_ns)


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
