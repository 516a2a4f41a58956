"""Runs and times placed steps in a testbed's client process, and serves the testbed's workers."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import tensorflow as tf

from placement_advisor.errors import TestbedError
from placement_advisor.machine import calibration as calibrations
from placement_advisor.machine import this_machine
from placement_advisor.tf import placed_step
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.failures import run_failure, step_without_end
from placement_advisor.tf.placed_step import PlacedStep, Runtime
from placement_advisor.tf.run import calibration, graph_timing
from placement_advisor.tf.run.graph_timing import timed
from placement_advisor.tf.trace.bundle import Bundle
from placement_advisor.tf.verifier import Verifier, read_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.host_figures import HostFigures, RouteFigures
    from placement_advisor.measurement.verification import StepResults, Verification
    from placement_advisor.processes.calls import CallFailure


P = ParamSpec("P")
T = TypeVar("T")


class _Program(NamedTuple):
    """A step that candidates run: what runs, its op graph, and how long a run may take."""

    bundle: Bundle
    graph: OpGraph
    limit_s: float


_programs: dict[str, _Program] = {}
_runtime = Runtime(address="")
_devices: dict[str, str] = {}
_host = ""
_ready: dict[str, PlacedStep] = {}
_placed: dict[str, tuple[str, dict[str, str]]] = {}
# Knows what the first candidate verified computes.
_verifier: Verifier | None = None


def open_runner(target: str, devices: dict[str, str], host: str, logical_cpus: int) -> None:
    """Remember the devices (our name -> TensorFlow's)."""
    global _runtime, _host, _verifier
    if target:  # The GPUs of this machine, if any, are for the processes of devices.
        os.environ[this_machine.VISIBLE_GPUS] = ""
    _host, _verifier = host, None
    on_gpus = any(map(placed_step.is_gpu, devices.values()))
    _runtime = Runtime(address=target, logical_cpus=logical_cpus, on_gpus=on_gpus)
    _devices.update(devices)


def open_program(name: str, folder: str, graph: OpGraph, limit_s: float) -> None:
    """Load a bundle that candidates can run, its op graph, and how long a run may take."""
    _programs[name] = _Program(Bundle.load(Path(folder)), graph, limit_s)
    if _verifier is not None:
        _verifier.forget(name)


def prepare(label: str, device_of: Mapping[str, str], program: str) -> Prepared | CallFailure:
    """Build the session of a candidate, run one step and prove where its ops ran."""
    bundle, graph, _ = _programs[program]
    discard(label)
    try:
        _ready[label] = _place(bundle, device_of)
    except (tf.errors.OpError, ValueError) as error:
        return _failure(error, program)
    _placed[label] = program, dict(device_of)
    placed, partitions = _ready[label].placed, _ready[label].partitions
    sizes = {(op.name, port): size for op in graph.ops for port, size in enumerate(op.output_bytes)}
    for name, loop in bundle.loops.items():
        sizes |= {output: sizes[name, port] for port, output in enumerate(loop.outputs)}
    names = {device: name for name, device in _devices.items()}
    if _runtime.address:  # Ops that a GPU cannot run are its own process's.
        names |= {placed_step.cpu_of(device): name for name, device in _devices.items()}
    return Prepared(
        moved_ops=placed_step.moved_ops(partitions, placed),
        crossings=placed_step.crossings(partitions, names, sizes),
    )


def discard(label: str) -> None:
    """Close a candidate's session and free its state."""
    ready = _ready.pop(label, None)
    if ready is not None:
        ready.close()


def results(label: str, steps: int) -> StepResults | CallFailure:
    """Return what steps from the initial state compute; the state is reset before and after."""
    try:
        return _ready[label].results(steps)
    except tf.errors.OpError as error:
        return _failure(error, _placed[label][0])


def verify(label: str, steps: int) -> Verification | CallFailure | None:
    """Run ``steps`` steps from the initial state and compare with the first candidate verified.

    None for the reference itself.
    """
    global _verifier
    program, device_of = _placed[label]
    bundle = _programs[program].bundle
    try:
        if _verifier is None:
            verifier = Verifier(_place, bundle, device_of, steps)
            verifier.begin()
            _verifier = verifier
            return None
        return _verifier.verify(program, bundle, device_of, _ready[label])
    except tf.errors.OpError as error:
        return _failure(error, program)


def compare(program: str, paths: list[str], seed: int | None) -> Verification | CallFailure | None:
    """Compare results that other processes wrote with those of the first candidate verified.

    They are of a step that is split as ``program`` is, from values rounded by a seed, if there is
    one. None without such a reference.
    """
    if _verifier is None:
        return None
    found = [each for path in paths for each in read_results(Path(path))]
    split = _programs[program].bundle.split
    assert split is not None, f"{program} is not split"
    try:
        return _verifier.compare(found, split, seed)
    except tf.errors.OpError as error:
        return _failure(error, program)


def _place(bundle: Bundle, device_of: Mapping[str, str]) -> PlacedStep:
    devices = {op: _devices[device] for op, device in device_of.items()}
    return PlacedStep(
        bundle, placed_step.placed_graph(bundle, devices, _host), _runtime, _limit_s()
    )


def _limit_s() -> float:
    """Return the limit of every step: the verifier runs several programs, at limits much alike."""
    return max(program.limit_s for program in _programs.values())


def _failure(error: Exception, program: str) -> CallFailure:
    if isinstance(error, tf.errors.DeadlineExceededError):
        return step_without_end(error, _programs[program].graph, _limit_s())
    return run_failure(error)


def run_steps(label: str, batch: int, steps: int) -> list[int] | CallFailure:
    """Put a batch in place, then run and time steps, each on its own, in ns."""
    ready = _ready[label]
    try:
        ready.put_batch(batch)
        return [timed(ready.run) for _ in range(steps)]
    except tf.errors.OpError as error:
        return _failure(error, _placed[label][0])


def profile_steps(label: str, steps: int, folder: str) -> str | CallFailure:
    """Run steps under this process's profiler, each marked as a step; return its file.

    Raises:
        TestbedError: the profiler wrote nothing.
    """
    try:
        with profiling(folder):
            run_marked(_ready[label].run, steps)
    except tf.errors.OpError as error:
        return _failure(error, _placed[label][0])
    return written_profile(Path(folder))


@contextmanager
def profiling(folder: str) -> Iterator[None]:
    """Profile this process into a folder."""
    tf.profiler.experimental.start(folder, options=profiler_options())
    try:
        yield
    finally:
        tf.profiler.experimental.stop()


def run_marked(run: Callable[[], object], steps: int) -> None:
    """Run steps, each marked as one for the profiler."""
    for number in range(steps):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            run()


def written_profile(folder: Path) -> str:
    """Return the file of the profile that was written into a folder.

    Raises:
        TestbedError: none was.
    """
    found = sorted(folder.rglob("*.xplane.pb"))
    if not found:
        raise TestbedError(f"the profiler wrote nothing for {folder.name}")
    return str(found[-1])


def profiler_options() -> Any:
    """Return the options of every profile: ops and copies, no Python frames."""
    return tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)


def _measures(measure: Callable[P, T]) -> Callable[P, T | CallFailure]:
    """Have a function measure once more if TensorFlow aborts it.

    Under load gRPC sends a request again that had arrived.
    """

    @wraps(measure)
    def measured(*args: P.args, **named: P.kwargs) -> T | CallFailure:
        try:
            try:
                return measure(*args, **named)
            except tf.errors.AbortedError:
                return measure(*args, **named)
        except tf.errors.OpError as error:
            return run_failure(error)

    return measured


@_measures
def calibrate(clocks: Mapping[str, str]) -> calibrations.Calibration:
    """Measure copies, starting a step and waiting; see `calibration.measure`."""
    return calibration.measure(_runtime, _devices, clocks)


@_measures
def calibrate_host(
    devices: tuple[str, ...], clocks: Mapping[str, str], drives: bool
) -> HostFigures:
    """Measure the devices of one host; see `calibration.measure_host`."""
    return calibration.measure_host(_runtime, _of(devices), clocks, drives=drives)


@_measures
def calibrate_route(
    one: tuple[str, ...], other: tuple[str, ...], clocks: Mapping[str, str], drives: bool
) -> RouteFigures:
    """Measure what it takes between the devices of two hosts; see `calibration.measure_route`."""
    return calibration.measure_route(_runtime, _of(one), _of(other), clocks, drives=drives)


@_measures
def probe_route(one: tuple[str, ...], other: tuple[str, ...], size_bytes: int) -> tuple[int, int]:
    """Look at a route once more; see `calibration.probe_route`."""
    return calibration.probe_route(_runtime, _of(one), _of(other), size_bytes)


def _of(devices: tuple[str, ...]) -> dict[str, str]:
    return {name: _devices[name] for name in devices}


def speed() -> dict[str, int]:
    """Return how long a reference product takes on each device now, in ns."""
    return calibration.speed(_runtime, _devices)


# Options of glibc's malloc: one heap for all threads, nothing mapped apart, nothing given back.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_MALLOC_OPTIONS = ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, (1 << 31) - 1))

_server: Any = None
_profiled = Path()


def serve(
    addresses: tuple[str, ...], index: int, slot: this_machine.Slot, carriers: tuple[int, ...]
) -> str | None:
    """Become a device and start its server; return the token of its `core_clock`.

    ``carriers`` are processes whose time counts as its own: they carry what it copies. The time of
    a GPU's process is not its device's: then there is no token.
    """
    global _server
    become_device(slot)
    config = tf.compat.v1.ConfigProto()
    if slot.is_core:
        config.intra_op_parallelism_threads = 1
        config.inter_op_parallelism_threads = calibrations.OP_THREADS
        # A thread that looks for the next op before it sleeps takes the core from whoever has one.
        config.experimental.disable_thread_spinning = True
    _server = tf.distribute.Server(
        {"worker": list(addresses)},
        job_name="worker",
        task_index=index,
        protocol="grpc",
        config=config,
    )
    return graph_timing.offer_core_clock(carriers) if slot.is_core else None


def _keep_freed_memory() -> None:
    """Let malloc give back nothing, as an accelerator's allocator does.

    Else each large tensor is mapped anew and its pages come from the system one by one, which made
    copies cost twice the time and their length a matter of chance.
    """
    libc = ctypes.CDLL(None)
    for option, value in _MALLOC_OPTIONS:
        libc.mallopt(option, value)


def become_device(slot: this_machine.Slot) -> None:
    """Let this process see its GPU alone; or none, and pin it to its core.

    There it keeps memory as an accelerator does.

    Raises:
        TestbedError: TensorFlow cannot use the GPU.
    """
    if not slot.is_core:
        os.environ[this_machine.VISIBLE_GPUS] = this_machine.visible_gpus()[slot.number]
        if not tf.config.list_physical_devices("GPU"):
            raise TestbedError(
                "TensorFlow finds no GPU, though the system has some",
                hint="pip install 'tensorflow[and-cuda]' there, or hide GPUs on all hosts: "
                f"{this_machine.VISIBLE_GPUS}= before `advisor`",
            )
        return
    os.environ[this_machine.VISIBLE_GPUS] = ""
    os.sched_setaffinity(0, {slot.number})
    _keep_freed_memory()
    # The allocator of accelerators: it takes memory once, and the profiler sees every piece.
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"


def start_profiler(folder: str) -> None:
    """Begin to profile this worker into a folder."""
    global _profiled
    _profiled = Path(folder)
    tf.profiler.experimental.start(folder, options=profiler_options())


def stop_profiler() -> str:
    """End the profile and write it; return its file.

    Raises:
        TestbedError: the profiler wrote nothing.
    """
    tf.profiler.experimental.stop()
    return written_profile(_profiled)
