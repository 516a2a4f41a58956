"""Runs placed steps: what the client process of a testbed does when it is called.

The same code drives worker processes and the devices of its own process. All candidates start
from the same state and see the same batches.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import tensorflow as tf

from placement_advisor.errors import TestbedError
from placement_advisor.machine.this_machine import VISIBLE_GPUS
from placement_advisor.tf.answers import Prepared
from placement_advisor.tf.failures import run_failure, step_without_end
from placement_advisor.tf.place import placer
from placement_advisor.tf.place.placed_step import PlacedStep, Runtime
from placement_advisor.tf.run import measure_hosts as hosts
from placement_advisor.tf.run import measure_testbed as calibration
from placement_advisor.tf.run.bench import timed
from placement_advisor.tf.trace.bundle import Bundle
from placement_advisor.tf.verify.results_file import read_results
from placement_advisor.tf.verify.verifier import Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.calibration import Calibration
    from placement_advisor.machine.host_figures import HostFigures, RouteFigures
    from placement_advisor.measurement.verification import StepResults, Verification
    from placement_advisor.processes.calls import CallFailure


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
        os.environ[VISIBLE_GPUS] = ""
    _host, _verifier = host, None
    on_gpus = any(map(placer.is_gpu, devices.values()))
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
        names |= {placer.cpu_of(device): name for name, device in _devices.items()}
    return Prepared(
        moved_ops=placer.moved_ops(partitions, placed),
        crossings=placer.crossings(partitions, names, sizes),
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
            verifier = Verifier(_place, bundle, device_of)
            verifier.begin(steps)
            _verifier = verifier
            return None
        return _verifier.verify(program, bundle, device_of, _ready[label], steps)
    except tf.errors.OpError as error:
        return _failure(error, program)


def compare(
    program: str, paths: list[str], steps: int, seed: int | None
) -> Verification | CallFailure | None:
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
        return _verifier.compare(found, split, steps, seed)
    except tf.errors.OpError as error:
        return _failure(error, program)


def _place(bundle: Bundle, device_of: Mapping[str, str]) -> PlacedStep:
    devices = {op: _devices[device] for op, device in device_of.items()}
    return PlacedStep(bundle, placer.placed_graph(bundle, devices, _host), _runtime, _limit_s())


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
    ready = _ready[label]
    tf.profiler.experimental.start(folder, options=profiler_options())
    try:
        for i in range(steps):
            with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
                ready.run()
    except tf.errors.OpError as error:
        return _failure(error, _placed[label][0])
    finally:
        tf.profiler.experimental.stop()
    return written_profile(Path(folder))


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


def calibrate(clocks: Mapping[str, str]) -> Calibration | CallFailure:
    """Measure copies, starting a step and waiting; see `calibration.measure`."""
    return _measured(lambda: calibration.measure(_runtime, _devices, clocks))


def calibrate_host(
    devices: tuple[str, ...], clocks: Mapping[str, str], drives: bool
) -> HostFigures | CallFailure:
    """Measure the devices of one host; see `hosts.measure_host`."""
    return _measured(lambda: hosts.measure_host(_runtime, _of(devices), clocks, drives=drives))


def calibrate_route(
    one: tuple[str, ...], other: tuple[str, ...], clocks: Mapping[str, str], drives: bool
) -> RouteFigures | CallFailure:
    """Measure what it takes between the devices of two hosts; see `hosts.measure_route`."""
    return _measured(
        lambda: hosts.measure_route(_runtime, _of(one), _of(other), clocks, drives=drives)
    )


def probe_route(
    one: tuple[str, ...], other: tuple[str, ...], size_bytes: int
) -> tuple[int, int] | CallFailure:
    """Look at a route once more; see `hosts.probe_route`."""
    return _measured(lambda: hosts.probe_route(_runtime, _of(one), _of(other), size_bytes))


def _of(devices: tuple[str, ...]) -> dict[str, str]:
    return {name: _devices[name] for name in devices}


def _measured(measure: Callable[[], T]) -> T | CallFailure:
    """Measure, once more if TensorFlow aborts it.

    Under load gRPC sends a request again that had arrived.
    """
    try:
        try:
            return measure()
        except tf.errors.AbortedError:
            return measure()
    except tf.errors.OpError as error:
        return run_failure(error)


def speed() -> dict[str, int]:
    """Return how long a reference product takes on each device now, in ns."""
    return calibration.speed(_runtime, _devices)
