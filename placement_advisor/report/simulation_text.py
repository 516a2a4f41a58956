"""A simulated step as text: one fact a line, names last, so that none is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.cost.table import CostBasis
from placement_advisor.machine.devices import Basis
from placement_advisor.report.document import Facts, Section, Table, as_text
from placement_advisor.report.trace_summary import total_text
from placement_advisor.simulator.schedule import PathKind, time_by_kind
from placement_advisor.units import counted, format_bytes, format_ns, format_share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.report.document import Part
    from placement_advisor.simulator.schedule import PathStep
    from placement_advisor.simulator.simulator import Simulation

LONGEST_PARTS = 10

_PATH_WORDS = {
    PathKind.COMPUTE: "compute",
    PathKind.COPY: "copies",
    PathKind.QUEUEING: "queueing for wires",
    PathKind.OVERHEAD: "starting, launching, ending",
}


def render_simulation(told: Simulation) -> str:
    """Return the text."""
    return as_text([Facts(_head(told)), _devices(told), _copies(told), _path(told)])


def _head(told: Simulation) -> Iterator[tuple[str, str]]:
    origin = told.origin
    yield "graph", f"{origin.graph_file}, fingerprint {told.graph.fingerprint}"
    yield "placement", f"{origin.placement_file}: {told.placement.label}"
    if origin.renamed:
        pairs = ", ".join(f"{old} as {new}" for old, new in origin.renamed.items())
        yield "", f"its devices are taken in order: {pairs}"
    yield "machine", f"{origin.machine}: {_machine(told)}"
    yield "costs", _costs(told)
    yield "step", f"{format_ns(told.schedule.step_ns)} simulated"


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
    text = counted(len(devices), "device")
    if hosts:
        text += f" and {counted(len(hosts), 'host')}"
    measured = sum(link.basis is Basis.MEASURED for link in told.cluster.links)
    if not measured:
        return f"{text}, every figure assumed"
    if measured < len(told.cluster.links):
        return f"{text}, {measured} of {len(told.cluster.links)} links measured"
    return f"{text}, links measured"


def _devices(told: Simulation) -> Section:
    columns = (
        *("compute", "copy work", "before", "for a copy", "for a launch", "for a device", "after"),
        *("peak memory", "device"),
    )
    rows = []
    for place, time in zip(told.cluster.places(), told.device_times, strict=True):
        peak_bytes = told.schedule.peak_memory_bytes[place.name]
        there = place.memory_bytes
        too_much = there is not None and peak_bytes > there
        unfit = f": does not fit, it has {format_bytes(there)}" if too_much else ""
        times_ns = (
            *(time.compute_ns, time.copy_work_ns, time.before_first_ns, time.waits_for_copy_ns),
            *(time.waits_for_launch_ns, time.waits_for_device_ns, time.after_last_ns),
        )
        rows.append([*map(format_ns, times_ns), format_bytes(peak_bytes), f"{place.name}{unfit}"])
    title = "time of each device; idle: before its first work, waiting, after its last work"
    return Section(title, [Table(columns, rows, names=(-1,))])


def _copies(told: Simulation) -> Part:
    schedule, unknown = told.schedule, told.schedule.carried.unknown
    if not told.directions:
        return "copies: none"
    title = (
        f"copies: {schedule.transfer_count} per step; {format_ns(schedule.exposed_ns)} exposed, "
        f"{format_ns(told.hidden_ns)} hidden behind compute"
        + (f", on {schedule.waits_longest}" if schedule.waits_longest else "")
    )
    rows = [
        (str(each.copies), total_text(each.size, format_bytes), f"{each.source} → {each.target}")
        for each in told.directions
    ]
    of_unknown = f"of unknown size, so priced at latency alone: {unknown}" if unknown else ""
    table = Table(("copies", "bytes", "direction"), rows, names=(-1,))
    return Section(title, [of_unknown, table])


def _path(told: Simulation) -> Section:
    time_ns, parts = time_by_kind(told.path), len(told.path)
    made_of = ", ".join(f"{_PATH_WORDS[kind]} {format_ns(time_ns[kind])}" for kind in PathKind)
    longest = sorted(told.path, key=lambda part: (-part.time_ns, part.start_ns))[:LONGEST_PARTS]
    rows = [
        (
            format_ns(part.time_ns),
            format_share(part.time_ns / told.schedule.step_ns),
            part.kind.value,
            _where(part),
        )
        for part in longest
    ]
    cut = f"the longest {LONGEST_PARTS} of its {parts} parts" if parts > LONGEST_PARTS else ""
    table = Table(("", "", "", ""), rows, names=(-1,))
    return Section(f"critical path: {made_of}", [cut, table])


def _where(part: PathStep) -> str:
    return f"{part.what}, {part.where}" if part.where else part.what
