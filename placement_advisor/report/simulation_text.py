"""A simulated step as text: one fact a line, names last, so that none is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostBasis
from placement_advisor.machine.devices import Basis
from placement_advisor.report.analysis.tables import one_line
from placement_advisor.report.trace_summary import aligned, fact
from placement_advisor.simulator.critical_path import PathKind, time_by_kind
from placement_advisor.units import format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.simulator.critical_path import PathStep
    from placement_advisor.simulator.simulation import Direction, Simulation

LONGEST_PARTS = 10

_PATH_WORDS = {
    PathKind.COMPUTE: "compute",
    PathKind.COPY: "copies",
    PathKind.QUEUEING: "queueing for wires",
    PathKind.OVERHEAD: "starting, launching, ending",
}


def render_simulation(told: Simulation) -> str:
    """Return the text."""
    parts = [list(_head(told)), list(_devices(told)), list(_copies(told)), list(_path(told))]
    return "\n\n".join("\n".join(map(str.rstrip, part)) for part in parts if part) + "\n"


def _head(told: Simulation) -> Iterator[str]:
    origin = told.origin
    yield fact("graph", one_line(f"{origin.graph_file}, fingerprint {told.graph.fingerprint}"))
    yield fact("placement", one_line(f"{origin.placement_file}: {told.placement.label}"))
    if origin.renamed:
        pairs = ", ".join(f"{old} as {new}" for old, new in origin.renamed.items())
        yield fact("", one_line(f"its devices are taken in order: {pairs}"))
    yield fact("machine", one_line(f"{origin.machine}: {_machine(told)}"))
    yield fact("costs", _costs(told))
    yield fact("step", f"{format_ns(told.schedule.step_ns)} simulated")


def _costs(told: Simulation) -> str:
    shares = told.basis_shares
    guessed = (
        f"{shares[CostBasis.GUESSED] * 100:.1f} % of the compute time is guessed from what is "
        "known of an op"
    )
    assumed = shares[CostBasis.KERNEL_ASSUMED]
    by_kernels = shares[CostBasis.KERNEL] + assumed
    if not by_kernels:
        return f"assumed: a roofline from the devices' figures; {guessed}"
    return (
        f"assumed: formulas of GPU kernels for {by_kernels * 100:.1f} % of the compute time, "
        f"{assumed * 100:.1f} % for kernels like none that they were fitted to; a roofline from "
        f"the devices' figures for the others; {guessed}"
    )


def _machine(told: Simulation) -> str:
    devices, hosts = told.cluster.devices, told.cluster.hosts
    text = f"{len(devices)} devices" if len(devices) > 1 else "1 device"
    if hosts:
        text += f" and {len(hosts)} hosts" if len(hosts) > 1 else " and 1 host"
    measured = sum(link.basis is Basis.MEASURED for link in told.cluster.links)
    if not measured:
        return f"{text}, every figure assumed"
    if measured < len(told.cluster.links):
        return f"{text}, {measured} of {len(told.cluster.links)} links measured"
    return f"{text}, links measured"


def _devices(told: Simulation) -> Iterator[str]:
    yield "time of each device; idle: before its first work, waiting, after its last work"
    heading = (
        *("compute", "copy work", "before", "for a copy", "for a launch", "for a device", "after"),
        *("peak memory", "device"),
    )
    rows = []
    places = told.cluster.places()
    for place, time in zip(places, told.device_times, strict=True):
        peak_bytes = told.schedule.peak_memory_bytes[place.name]
        there = place.memory_bytes
        too_much = there is not None and peak_bytes > there
        name = one_line(place.name)
        rows.append(
            (
                format_ns(time.compute_ns),
                format_ns(time.copy_work_ns),
                format_ns(time.before_first_ns),
                format_ns(time.waits_for_copy_ns),
                format_ns(time.waits_for_launch_ns),
                format_ns(time.waits_for_device_ns),
                format_ns(time.after_last_ns),
                format_bytes(peak_bytes),
                f"{name}: does not fit, it has {format_bytes(there)}" if too_much else name,
            )
        )
    yield from aligned([heading, *rows])


def _copies(told: Simulation) -> Iterator[str]:
    schedule = told.schedule
    if not told.directions:
        yield "copies: none"
        return
    yield (
        f"copies: {schedule.transfer_count} per step; {format_ns(schedule.exposed_ns)} exposed, "
        f"{format_ns(told.hidden_ns)} hidden behind compute"
        + (f", on {one_line(schedule.waits_longest)}" if schedule.waits_longest else "")
    )
    if schedule.carried.unknown:
        yield f"of unknown size, so priced at latency alone: {schedule.carried.unknown}"
    yield from aligned(
        [
            ("copies", "bytes", "direction"),
            *(
                (str(each.copies), _size(each), one_line(f"{each.source} → {each.target}"))
                for each in told.directions
            ),
        ]
    )


def _size(direction: Direction) -> str:
    if direction.size.amount is None:
        return "unknown"
    text = format_bytes(direction.size.amount)
    return f"at least {text}" if direction.size.unknown else text


def _path(told: Simulation) -> Iterator[str]:
    if not told.path:
        return
    time_ns = time_by_kind(told.path)
    made_of = ", ".join(f"{_PATH_WORDS[kind]} {format_ns(time_ns[kind])}" for kind in PathKind)
    yield f"critical path: {made_of}"
    longest = sorted(told.path, key=lambda part: (-part.time_ns, part.start_ns))[:LONGEST_PARTS]
    if len(told.path) > LONGEST_PARTS:
        yield f"the longest {LONGEST_PARTS} of its {len(told.path)} parts"
    yield from aligned(
        [
            (
                format_ns(part.time_ns),
                format_share(part.time_ns / told.schedule.step_ns),
                part.kind.value,
                one_line(_where(part)),
            )
            for part in longest
        ]
    )


def _where(part: PathStep) -> str:
    return f"{part.what}, {part.where}" if part.where else part.what
