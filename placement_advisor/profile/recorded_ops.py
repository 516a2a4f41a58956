"""Op times, copies and facts about devices, from profiles recorded elsewhere.

They come from TensorBoard's Keras callback, from `tf.profiler`, or from this program, with
GPUs or without. A step is what a step mark spans on the host; work of a GPU belongs to the
step that launched it, which the correlation id of the launch tells. A kernel belongs to the
innermost op that it was launched for. On the host, an op takes what its thread spends on it,
less the ops within it. Every step but the first counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile import xplane
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import HOST, UNKNOWN_END
from placement_advisor.profile.formats import CLIENT_FILE, SUFFIX, FileFormat, recorded_run
from placement_advisor.profile.gpu_planes import gpu_planes, gpu_streams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.profile.device_trace import Spans
    from placement_advisor.profile.gpu_planes import Stream
    from placement_advisor.profile.xplane_schema import StatValue
    from placement_advisor.profile.xspace_columns import SpaceFile, StoredPlane
    from placement_advisor.simulator.schedule import Interval

    Sample = tuple[int, int]


STEPS_LINE = "Steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSteps:
    """The steps of one process without the warm-up; a step is known by its start.

    ``by_gpu`` is by number, None where marks of the host count.
    """

    by_host: profile_steps.StepWindows
    by_gpu: Mapping[int, profile_steps.StepWindows] | None
    marks: profile_steps.Marks

    def of_host_event(self, event: xplane.Event) -> int | None:
        """Return the step in which the event started, None if in none."""
        return _start(self.by_host.at(event.start_ns))

    def of_stream(self, gpu: int, stream: Stream) -> list[int | None]:
        """Return the step in which each event was launched, None for what was in none.

        The stream, one of that GPU, was read with the key `CORRELATION`.
        """
        windows, moments = self.by_host, stream.events.start_ns
        if self.by_gpu is None:
            moments = self.marks.launch_of(stream.events.key, otherwise=moments)
        else:
            windows = self.by_gpu[gpu]
        return [_start(windows.at(moment_ns)) for moment_ns in moments.tolist()]


def recorded_steps(files: Sequence[SpaceFile]) -> list[RecordedSteps]:
    """Return the steps of each of the processes that were profiled together.

    A process without marks has those of the others: they told it what to do, on the same machine.
    """
    marks = [profile_steps.read_marks(file, launches=True) for file in files]
    everywhere = profile_steps.outermost(
        span for of_process in marks for span in of_process.steps.pairs()
    )
    return [
        _steps(file, own, own.steps if len(own.steps.start) else everywhere)
        for file, own in zip(files, marks, strict=True)
    ]


def _steps(file: SpaceFile, marks: profile_steps.Marks, spans: Spans) -> RecordedSteps:
    windows = profile_steps.windows_of(spans.pairs())
    by_gpu = None
    if not windows.windows:
        by_gpu = {
            number: profile_steps.windows_of(
                profile_steps.outermost(_step_line(file, plane)).pairs()
            )
            for number, plane in gpu_planes(file).items()
        }
    by_host = windows.covered_by(file.planes)
    return RecordedSteps(
        by_host=_after_warm_up(by_host),
        by_gpu=by_gpu and {gpu: _after_warm_up(windows) for gpu, windows in by_gpu.items()},
        marks=marks,
    )


def _after_warm_up(windows: profile_steps.StepWindows) -> profile_steps.StepWindows:
    has_several = len(windows.windows) > 1
    return profile_steps.StepWindows(windows.windows[1:]) if has_several else windows


def _start(step: profile_steps.RecordedStep | None) -> int | None:
    return None if step is None else step.start_ns


def _step_line(file: SpaceFile, plane: StoredPlane) -> list[Interval]:
    return [
        span
        for line in plane.lines
        if line.name == STEPS_LINE
        for span in file.events(plane, line).spans.pairs()
    ]


_BETWEEN_DEVICES = (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST, CopyKind.PEER)
_INPUT_PIPELINE = "tf_data"
_HANDING_ON = frozenset({"_Arg", "_HostRecv", "_HostSend", "_Recv", "_Retval", "_Send"})
# A replica of a mirrored step is the same op on another GPU.
_REPLICA = re.compile(r"(?<![^/])replica_\d+/")
# What CUPTI keeps about the op behind a kernel: all levels of it, or the outermost alone. Between
# levels stands ``::``, behind each of them ``#key=value#``.
_ANNOTATIONS = ("annotation", "tf_op", "level 0")
_LEVEL_FACTS = re.compile(r"#[^#]*#")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProcess:
    """The profile of one process: its file, what its host and GPUs are called, its steps.

    ``shares_core`` says that all its threads have one core between them.
    """

    host: str
    file: SpaceFile
    gpus: Mapping[int, str]
    steps: RecordedSteps
    shares_core: bool

    def streams(self, stats: Collection[str] = ()) -> Iterator[tuple[int, Stream]]:
        """Read what the GPUs did, with their numbers and the stats that are asked for."""
        return gpu_streams(
            self.file, self.gpus, elsewhere=UNKNOWN_END, key=profile_steps.CORRELATION, of_all=stats
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOpRun:
    """One run of an op (name, kind) within a step, which is told by its start.

    ``op`` is None for work that belongs to none. ``on_device`` is False on the host of GPUs.
    """

    op: tuple[str, str] | None
    device: str
    on_device: bool
    step: int
    time_ns: int


def recorded_op_runs(process: RecordedProcess) -> Iterator[RecordedOpRun]:
    """Yield what ran in the steps of the process."""
    has_kernels = False
    for number, stream in process.streams(_ANNOTATIONS):
        has_kernels = has_kernels or len(stream.events.name) > 0
        steps, took_ns = process.steps.of_stream(number, stream), stream.events.duration_ns.tolist()
        for place in stream.work.tolist():
            step = steps[place]
            if step is not None:
                yield RecordedOpRun(
                    op=_op_behind(stream.stats.get(place, {})),
                    device=process.gpus[number],
                    on_device=True,
                    step=step,
                    time_ns=took_ns[place],
                )
    for event, op, own_ns in _host_ops(process):
        step = process.steps.of_host_event(event)
        if step is not None and op[1] not in _HANDING_ON:
            yield RecordedOpRun(
                op=op, device=process.host, on_device=not has_kernels, step=step, time_ns=own_ns
            )


def recorded_copies(process: RecordedProcess) -> Iterator[tuple[str, str, Sample]]:
    """Yield source, target, bytes and ns of each copy between devices, in steps or not."""
    for _, stream in process.streams():
        for route, places in stream.copied.items():
            if route.kind not in _BETWEEN_DEVICES:
                continue
            source, target = (process.host if end == HOST else end for end in route[:2])
            sizes, took_ns = stream.size_bytes[places], stream.events.duration_ns[places]
            for sample in zip(sizes.tolist(), took_ns.tolist(), strict=True):
                if sample[0] > 0 and sample[1]:
                    yield source, target, sample


def _op_behind(stats: Mapping[str, StatValue]) -> tuple[str, str] | None:
    for stat in _ANNOTATIONS:
        levels = _LEVEL_FACTS.sub("", str(stats.get(stat, ""))).split("::")
        for level in reversed(levels):
            if found := profile_steps.OP_EVENT.fullmatch(level):
                return _op(found)
    return None


def _op(found: re.Match[str]) -> tuple[str, str]:
    return _REPLICA.sub("", found[1]), found[2]


def _host_ops(process: RecordedProcess) -> Iterator[tuple[xplane.Event, tuple[str, str], int]]:
    """Yield the ops of the host with their own time."""
    threads = [
        [
            (event, _op(found))
            for event in line.events
            if (found := profile_steps.OP_EVENT.fullmatch(event.name))
        ]
        for line in profile_steps.host_lines(process.file)
        if not line.name.startswith(_INPUT_PIPELINE)
    ]
    events = [[event for event, _ in thread] for thread in threads]
    own = profile_steps.shared_core_ns(events) if process.shares_core else map(_own_core_ns, events)
    for thread, own_ns in zip(threads, own, strict=True):
        for (event, op), time_ns in zip(thread, own_ns, strict=True):
            yield event, op, time_ns


def _own_core_ns(events: Sequence[xplane.Event]) -> list[int]:
    """Return the time of each event of a thread without that of events within it."""
    own_ns = [event.duration_ns for event in events]
    around: list[int] = []
    for place in sorted(range(len(events)), key=lambda i: (events[i].start_ns, -events[i].end_ns)):
        while around and events[around[-1]].end_ns <= events[place].start_ns:
            around.pop()
        if around:
            own_ns[around[-1]] -= events[place].duration_ns
        around.append(place)
    return [max(0, time_ns) for time_ns in own_ns]


# The graph of a logdir that a training of the user's own left, beside its profile.
GRAPH = "graph.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedOp:
    """An op by its recorded name and kind; ``step_ns`` has its time in each step on each device.

    ``on_device`` is False for what the host of GPUs spent on it.
    """

    name: str
    kind: str
    on_device: bool
    step_ns: tuple[int, ...]

    @property
    def median_ns(self) -> int:
        """Median over the steps in which it ran."""
        return int(median(self.step_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProfile:
    """A recorded profile.

    Devices are ``GPU:0``, ``GPU:1`` and so on over all files, or the ``CPU:n`` of a file without
    GPUs. ``copies`` are those of the whole profile as (bytes, ns), by source and target, the host
    of a file being its ``CPU:n``. ``anonymous_ns`` is what kernels that belong to no op took in
    all steps but those of warm-up. ``graph`` is that of the step, None where none lies beside the
    profile.
    """

    path: str
    ops: tuple[RecordedOp, ...]
    anonymous_ns: int
    copies: Mapping[tuple[str, str], tuple[Sample, ...]]
    graph: OpGraph | None = None


def read_recorded(path: Path, *, shares_core: bool = False) -> RecordedProfile:
    """Read a profile: an ``.xplane.pb`` file, a run folder, or a logdir, of which the newest run.

    ``shares_core``: all threads of a process had one core between them, as they have in profiles
    of this program's own.

    Raises:
        AdvisorError: there is no profile, a file is corrupt (the graph of a logdir among them), or
            no op is seen within a step.
    """
    run = recorded_run(path)
    files = run.files
    if run.form is not FileFormat.XSPACE:
        raise AdvisorError(
            f"{files[0]} ({run.form}) does not say which op took which time",
            hint=f"op costs are read from profiles of TensorFlow, *{SUFFIX}; `advisor profile` "
            "reads this one",
        )
    is_own = any(file.name == CLIENT_FILE for file in files)
    spaces = [xplane.space_file(file) for file in files]
    processes = tuple(_processes(spaces, shares_core=is_own or shares_core))
    seen = [run for process in processes for run in recorded_op_runs(process)]
    if not any(run.on_device and run.op for run in seen):
        raise AdvisorError(
            f"the profile {path} shows no op within a step",
            hint="record several steps with the TensorBoard callback, or put each step into "
            'tf.profiler.experimental.Trace("train", step_num=step, _r=1)',
        )
    samples: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for process in processes:
        for source, target, sample in recorded_copies(process):
            samples[source, target].append(sample)
    return RecordedProfile(
        path=str(path if run.note is None else files[0].parent),
        ops=tuple(_ops(seen)),
        anonymous_ns=sum(run.time_ns for run in seen if run.op is None),
        copies={ends: tuple(found) for ends, found in sorted(samples.items())},
        graph=OpGraph.load(path / GRAPH) if (path / GRAPH).is_file() else None,
    )


def _processes(files: Sequence[SpaceFile], *, shares_core: bool) -> Iterator[RecordedProcess]:
    gpu_count = 0
    for i, (file, steps) in enumerate(zip(files, recorded_steps(files), strict=True)):
        planes = gpu_planes(file)
        yield RecordedProcess(
            host=f"CPU:{i}",
            file=file,
            gpus={number: f"GPU:{gpu_count + place}" for place, number in enumerate(planes)},
            steps=steps,
            shares_core=shares_core,
        )
        gpu_count += len(planes)


def _ops(seen: Iterable[RecordedOpRun]) -> Iterator[RecordedOp]:
    times: defaultdict[tuple[str, str], dict[bool, defaultdict[tuple[str, int], int]]]
    times = defaultdict(lambda: {True: defaultdict(int), False: defaultdict(int)})
    for run in seen:
        if run.op is not None:
            times[run.op][run.on_device][run.device, run.step] += run.time_ns
    for (name, kind), by_place in sorted(times.items()):
        # What the host spends on an op with kernels is to launch them.
        on_device = bool(by_place[True])
        yield RecordedOp(
            name=name,
            kind=kind,
            on_device=on_device,
            step_ns=tuple(by_place[on_device].values()),
        )
