"""What a profile says that a user recorded elsewhere: op times, copies, and facts about devices.

Recorded with TensorBoard's Keras callback or `tf.profiler`, on GPUs or without, or by this program
itself. Times of an op within a step add up; every step is kept but the first.

Left out: copies between workers, which only a plan of who sends what can tell; what a copy waits
before it starts; that on a busy host threads keep each other waiting; how many training steps one
step mark spans (`steps_per_execution`). Written from the names that TensorFlow, CUPTI and XProf
give to events.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.profile.file_format import SUFFIX, FileFormat
from placement_advisor.profile.recorded.recorded_events import Process, Run, copies, runs
from placement_advisor.profile.recorded.recorded_steps import recorded_steps
from placement_advisor.profile.run_files import CLIENT_FILE, recorded_run
from placement_advisor.profile.timeline.gpu_streams import gpu_planes
from placement_advisor.profile.xspace.xplane import space_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.profile.recorded.recorded_events import Sample
    from placement_advisor.profile.xspace.space_file import SpaceFile

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
class Recorded:
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


def read_recorded(path: Path, *, shares_core: bool = False) -> Recorded:
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
    spaces = [space_file(file) for file in files]
    processes = tuple(_processes(spaces, shares_core=is_own or shares_core))
    seen = [run for process in processes for run in runs(process)]
    if not any(run.on_device and run.op for run in seen):
        raise AdvisorError(
            f"the profile {path} shows no op within a step",
            hint="record several steps with the TensorBoard callback, or put each step into "
            'tf.profiler.experimental.Trace("train", step_num=step, _r=1)',
        )
    samples: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for process in processes:
        for source, target, sample in copies(process):
            samples[source, target].append(sample)
    return Recorded(
        path=str(path if run.note is None else files[0].parent),
        ops=tuple(_ops(seen)),
        anonymous_ns=sum(run.time_ns for run in seen if run.op is None),
        copies={ends: tuple(found) for ends, found in sorted(samples.items())},
        graph=OpGraph.load(path / GRAPH) if (path / GRAPH).is_file() else None,
    )


def _processes(files: Sequence[SpaceFile], *, shares_core: bool) -> Iterator[Process]:
    gpu_count = 0
    for i, (file, steps) in enumerate(zip(files, recorded_steps(files), strict=True)):
        planes = gpu_planes(file)
        yield Process(
            host=f"CPU:{i}",
            file=file,
            gpus={number: f"GPU:{gpu_count + place}" for place, number in enumerate(planes)},
            gpu_planes=planes,
            steps=steps,
            shares_core=shares_core,
        )
        gpu_count += len(planes)


def _ops(seen: Iterable[Run]) -> Iterator[RecordedOp]:
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
