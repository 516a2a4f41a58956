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
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.profile import steps as profile_steps
from placement_advisor.profile import xplane
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import HOST, UNKNOWN_END
from placement_advisor.profile.formats import CLIENT_FILE, SUFFIX, FileFormat, recorded_run
from placement_advisor.profile.gpu_planes import Stream, gpu_planes, gpu_streams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.profile.steps import Marks
    from placement_advisor.profile.xplane_schema import StatValue
    from placement_advisor.profile.xspace_columns import SpaceFile, StoredPlane
    from placement_advisor.simulator.schedule import Interval

    Sample = tuple[int, int]
    Ran = tuple[str, str]
    Where = tuple[str, int]


_BETWEEN_DEVICES = (CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST, CopyKind.PEER)
_INPUT_PIPELINE = "tf_data"
_HANDING_ON = frozenset({"_Arg", "_HostRecv", "_HostSend", "_Recv", "_Retval", "_Send"})
# A replica of a mirrored step is the same op on another GPU.
_REPLICA = re.compile(r"(?<![^/])replica_\d+/")
# What CUPTI keeps about the op behind a kernel: all levels of it, or the outermost alone. Between
# levels stands ``::``, behind each of them ``#key=value#``.
_ANNOTATIONS = ("annotation", "tf_op", "level 0")
_LEVEL_FACTS = re.compile(r"#[^#]*#")


STEPS_LINE = "Steps"


class _Process:
    """The profile of one process; a step, of those without the warm-up, is known by its start."""

    def __init__(self, file: SpaceFile, host: str, gpus: Mapping[int, str], marks: Marks) -> None:
        """Take a file, and what its host and GPUs are called; without marks XProf's steps count."""
        self.host, self.gpus = host, gpus
        self._file, self._marks = file, marks
        windows = profile_steps.windows_of(marks.steps.pairs())
        self._by_gpu = {
            number: _after_warm_up(profile_steps.windows_of(_derived_steps(file, plane)))
            for number, plane in gpu_planes(file).items()
            if not windows.windows
        }
        self._by_host = _after_warm_up(windows.covered_by(file.planes))

    def op_runs(self, *, shares_core: bool) -> Iterator[tuple[Ran | None, bool, Where, int]]:
        """Yield the op of each run in steps, whether it was on a device, device and step, and ns.

        Work that belongs to no op has None. It is not on a device on the host of GPUs.
        ``shares_core`` says that all threads of the process have one core between them.
        """
        has_kernels = False
        for number, stream in self._streams(_ANNOTATIONS):
            has_kernels = has_kernels or len(stream.events.name) > 0
            windows, moments = self._by_host, stream.events.start_ns
            if number in self._by_gpu:
                windows = self._by_gpu[number]
            else:
                moments = self._marks.launch_of(stream.events.key, otherwise=moments)
            for place, took_ns in zip(
                stream.work.tolist(), stream.events.duration_ns[stream.work].tolist(), strict=True
            ):
                step = windows.at(int(moments[place]))
                if step is not None:
                    op = _op_behind(stream.stats.get(place, {}))
                    yield op, True, (self.gpus[number], step.start_ns), took_ns
        threads = [
            [
                (event, _op(found))
                for event in line.events
                if (found := profile_steps.OP_EVENT.fullmatch(event.name))
            ]
            for line in profile_steps.host_lines(self._file)
            if not line.name.startswith(_INPUT_PIPELINE)
        ]
        for on_core in [threads] if shares_core else [[thread] for thread in threads]:
            own = profile_steps.shared_core_ns([[event for event, _ in each] for each in on_core])
            for (event, op), own_ns in zip(chain(*on_core), chain(*own), strict=True):
                step = self._by_host.at(event.start_ns)
                if step is not None and op[1] not in _HANDING_ON:
                    yield op, not has_kernels, (self.host, step.start_ns), own_ns

    def copies(self) -> Iterator[tuple[str, str, Sample]]:
        """Yield source, target, bytes and ns of each copy between devices, in steps or not."""
        for _, stream in self._streams():
            for route, places in stream.copied.items():
                if route.kind not in _BETWEEN_DEVICES:
                    continue
                source, target = (self.host if end == HOST else end for end in route[:2])
                sizes, took_ns = stream.size_bytes[places], stream.events.duration_ns[places]
                for sample in zip(sizes.tolist(), took_ns.tolist(), strict=True):
                    if sample[0] > 0 and sample[1]:
                        yield source, target, sample

    def _streams(self, stats: Collection[str] = ()) -> Iterator[tuple[int, Stream]]:
        key = profile_steps.CORRELATION
        return gpu_streams(self._file, self.gpus, elsewhere=UNKNOWN_END, key=key, of_all=stats)


def _after_warm_up(windows: profile_steps.StepWindows) -> profile_steps.StepWindows:
    has_several = len(windows.windows) > 1
    return profile_steps.StepWindows(windows.windows[1:]) if has_several else windows


def _derived_steps(file: SpaceFile, plane: StoredPlane) -> list[Interval]:
    lines = (line for line in plane.lines if line.name == STEPS_LINE)
    spans = (span for line in lines for span in file.events(plane, line).spans.pairs())
    return profile_steps.outermost(spans).pairs()


def _op_behind(stats: Mapping[str, StatValue]) -> Ran | None:
    for stat in _ANNOTATIONS:
        levels = _LEVEL_FACTS.sub("", str(stats.get(stat, ""))).split("::")
        for level in reversed(levels):
            if found := profile_steps.OP_EVENT.fullmatch(level):
                return _op(found)
    return None


def _op(found: re.Match[str]) -> Ran:
    return _REPLICA.sub("", found[1]), found[2]


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
    processes = tuple(_processes(spaces))
    times: defaultdict[Ran | None, dict[bool, defaultdict[Where, int]]]
    times = defaultdict(lambda: {True: defaultdict(int), False: defaultdict(int)})
    samples: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for process in processes:
        for op, on_device, where, time_ns in process.op_runs(shares_core=is_own or shares_core):
            times[op][on_device][where] += time_ns
        for source, target, sample in process.copies():
            samples[source, target].append(sample)
    named = sorted((op, by_place) for op, by_place in times.items() if op is not None)
    if not any(by_place[True] for _, by_place in named):
        raise AdvisorError(
            f"the profile {path} shows no op within a step",
            hint="record several steps with the TensorBoard callback, or put each step into "
            'tf.profiler.experimental.Trace("train", step_num=step, _r=1)',
        )
    return RecordedProfile(
        path=str(path if run.note is None else files[0].parent),
        ops=tuple(
            RecordedOp(
                name=op[0],
                kind=op[1],
                on_device=bool(by_place[True]),
                # What the host spends on an op with kernels is to launch them.
                step_ns=tuple((by_place[True] or by_place[False]).values()),
            )
            for op, by_place in named
        ),
        anonymous_ns=sum(times[None][True].values()),
        copies={ends: tuple(found) for ends, found in sorted(samples.items())},
        graph=OpGraph.load(path / GRAPH) if (path / GRAPH).is_file() else None,
    )


def _processes(files: Sequence[SpaceFile]) -> Iterator[_Process]:
    """Yield the processes that were profiled together.

    One without marks has the steps of the others: they told it what to do, on the same machine.
    """
    marks = [profile_steps.read_marks(file, launches=True) for file in files]
    everywhere = profile_steps.outermost(
        span for of_process in marks for span in of_process.steps.pairs()
    )
    gpu_count = 0
    for i, (file, own) in enumerate(zip(files, marks, strict=True)):
        planes = gpu_planes(file)
        gpus = {number: f"GPU:{gpu_count + place}" for place, number in enumerate(planes)}
        known = own if len(own.steps.start) else own._replace(steps=everywhere)
        yield _Process(file, f"CPU:{i}", gpus, known)
        gpu_count += len(planes)
