"""What was recorded of a training, in three lines: compute, copies by route, what to run next."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import tensorflow as tf

from placement_advisor.errors import AdvisorError
from placement_advisor.machine.presets import read_hardware
from placement_advisor.profile.device_trace import DeviceUse
from placement_advisor.profile.read_profile import read_profile
from placement_advisor.profile.recorded_ops import GRAPH
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from placement_advisor.profile.totals import DeviceTotals, ProfileTotals, RouteTotals
    from placement_advisor.tf.training.recorder import Recorder
    from placement_advisor.tf.training.step_graph import StepGraph

_MOST_ROUTES = 3


def finish(recorder: Recorder, graph: Callable[[], StepGraph]) -> Iterator[str]:
    """Write the graph of what was recorded, and yield the lines to print.

    A training that took days must not end here, whatever fails: it is told instead.
    """
    if not recorder.recorded:
        why = recorder.failure or (
            f"training ended after step {recorder.begun}, before step {recorder.first}"
        )
        yield f"placement-advisor recorded nothing: {why}"
        return
    step, note = None, None
    try:
        step = graph()
        step.graph.save(recorder.log_dir / GRAPH)
    except Exception as error:
        step, note = None, f"no {GRAPH}: {_first_line(error)}"
    try:
        yield from _lines(recorder, step)
    except Exception as error:
        yield f"recorded in {recorder.log_dir}, and not read: {_first_line(error)}"
    if note is not None:
        yield note


def _first_line(error: Exception) -> str:
    if isinstance(error, AdvisorError):
        first = error.message.splitlines()[0]
        return f"{first} ({error.hint})" if error.hint else first
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _lines(recorder: Recorder, step: StepGraph | None) -> Iterator[str]:
    ops = None if step is None else step.graph
    read = read_profile(
        recorder.log_dir, graph=ops, ask_xprof=False, working=lambda what, done, total: None
    )
    yield f"compute  {_compute(read.totals, recorder)}"
    yield f"copies   {_copies(read.totals)}"
    yield f"next     {_next(recorder.log_dir, step)}"


def _compute(totals: ProfileTotals, recorder: Recorder) -> str:
    step_ns = sorted(totals.step_ns)[len(totals.step_ns) // 2] if totals.step_ns else None
    parts = [_device(device, step_ns) for device in totals.devices]
    of = f" of a step of {format_ns(step_ns)}" if step_ns is not None else ""
    until = recorder.first + recorder.recorded - 1
    return f"{', '.join(parts)}{of} (steps {recorder.first} to {until})"


def _device(device: DeviceTotals, step_ns: int | None) -> str:
    if device.per_step is None or not step_ns:
        return f"{device.device} {format_ns(device.total[DeviceUse.COMPUTE].time_ns)} in all"
    time_ns = device.per_step[DeviceUse.COMPUTE].time_ns
    return f"{device.device} {format_ns(time_ns)} ({format_share(time_ns / step_ns)})"


def _copies(totals: ProfileTotals) -> str:
    if not totals.routes:
        if any(device.device.startswith("GPU") for device in totals.devices):
            return "none"
        return "none seen: CPUs of one process hand tensors on as pointers"
    routes = sorted(totals.routes, key=lambda route: -route.exposed_ns)
    shown = [_route(route) for route in routes[:_MOST_ROUTES]]
    more = len(routes) - len(shown)
    return "; ".join(shown) + (f"; and {more} more routes" if more else "")


def _route(route: RouteTotals) -> str:
    ends = f"{route.route.source} → {route.route.target}"
    size = "of unknown size" if route.of_unknown_size else format_bytes(route.size_bytes)
    return (
        f"{ends} {route.count} copies, {size}, exposed {format_ns(route.exposed_ns)} "
        f"of {format_ns(route.time_ns)}"
    )


def _next(log_dir: Path, step: StepGraph | None) -> str:
    logs = shlex.quote(str(log_dir))
    profile = f"advisor profile {logs}"
    if step is not None:
        profile += f" --graph {shlex.quote(str(log_dir / GRAPH))}"
    script = getattr(sys.modules["__main__"], "__file__", None)
    model = shlex.quote(script) if script and script.endswith(".py") else "model.py"
    hardware = _hardware()
    first = "" if hardware else "advisor calibrate -o devices.toml && "
    analyze = f"advisor analyze {model} --hardware {hardware or 'devices.toml'} --costs {logs}"
    if step is not None and step.batch_size is not None:
        # Without it the file's own batch counts, whose ops take other times.
        analyze += f" --batch-size {step.batch_size}"
    return f"{profile}; for a verdict: {first}{analyze}"


def _hardware() -> str | None:
    """Return the GPUs of this process as `--hardware` calls them, None if it does not know them."""
    names = []
    for gpu in tf.config.list_physical_devices("GPU"):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "")
        names.append(name.removeprefix("NVIDIA ").removeprefix("Tesla ").replace(" ", "-"))
    if not names or len(set(names)) > 1:
        return None
    # A verdict is about two devices at least.
    text = f"{max(2, len(names))}x{names[0]}"
    try:
        read_hardware(text)
    except AdvisorError:
        return None
    return text
