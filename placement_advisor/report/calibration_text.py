"""What a calibration found, as text: tables of copies and of the cores, then a fact a line.

Left out: the single copies, which JSON has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import REFERENCE_WIDTH
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.report.document import Facts, Table, as_text
from placement_advisor.units import (
    format_bandwidth,
    format_bytes,
    format_flops,
    format_ns,
    format_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement_advisor.cost.calibration_summary import CalibrationSummary
    from placement_advisor.machine.devices import CopyWork

_LABEL_WIDTH, _WIDTH = 19, 100
_BYTES_PER_MB = 10**6
# One step in ten takes a tenth longer than usual: differences of a few percent between candidates
# then need many rounds, which other work on the machine makes longer still.
_UNSTEADY_P90 = 1.1
# Past this, copies in predictions may be wrong by half: tensors are handed over as pointers, or the
# machine was busy with something else.
_ROUGH_RESIDUAL = 0.5
_LINK_WORDS = {
    HostLink.TLS: "tensors travel by TLS through a relay on each host (--link tls)",
    HostLink.DIRECT: "tensors travel as they are, unencrypted (--link direct)",
}


def render_calibration(summary: CalibrationSummary) -> str:
    """Return the text, which ends with what to type next."""
    head = f"calibrated {summary.description}, TensorFlow {summary.tensorflow_version}"
    tables = (_links(summary), _residuals(summary), _references(summary))
    return as_text([head, *tables, Facts(_facts(summary), _LABEL_WIDTH)], _WIDTH)


def _links(summary: CalibrationSummary) -> Table:
    rows = []
    for ends, words in summary.links().items():
        link = summary.cluster.link(*ends)
        is_known = summary.calibration.links[ends][0].send_ns is not None
        work = [_work(link.sender), _work(link.receiver)] if is_known else ["?", "?"]
        times = [format_ns(link.latency_ns), format_bandwidth(link.bandwidth_bytes_per_s)]
        rows.append([words, *times, *work])
    columns = ("latency", "bandwidth", "sender's core", "receiver's core")
    return Table(["copies", *columns], rows, label_width=_LABEL_WIDTH)


def _residuals(summary: CalibrationSummary) -> Table:
    """Return how far a link's line is from the copies, by their size."""
    links = summary.calibration.links
    sizes = sorted({timing.size_bytes for timings in links.values() for timing in timings})
    rows = []
    for ends, words in summary.links().items():
        found = {timing.size_bytes: summary.residual(ends, timing) for timing in links[ends]}
        rows.append([words, *(_signed(found.get(size)) for size in sizes)])
    titles = ["the line is off by", *map(format_bytes, sizes)]
    return Table(titles, rows, label_width=_LABEL_WIDTH)


def _references(summary: CalibrationSummary) -> Table:
    calibration = summary.calibration
    rows = []
    for name, time_ns in calibration.reference_ns.items():
        flops = summary.flops_per_s(name)
        speed = "?" if flops is None else f"{format_flops(flops)}/s"
        slower = max(0.0, calibration.reference_p90[name] - 1)
        rows.append([name, format_ns(time_ns), speed, format_share(slower)])
    size = f"{REFERENCE_WIDTH} × {REFERENCE_WIDTH}"
    titles = ("reference product", size, "speed", "one step in ten is slower by")
    return Table(titles, rows, label_width=_LABEL_WIDTH)


def _facts(summary: CalibrationSummary) -> Iterator[tuple[str, str]]:
    calibration = summary.calibration
    for (one, other), timing in calibration.both_ways.items():
        yield (
            "both ways at once",
            f"{one} ↔ {other}: {format_bytes(timing.size_bytes)} each way "
            + _took(timing.ratio, "one way", "in turns"),
        )
    yield from _between_hosts(summary)
    yield from _overlap(summary)
    yield "a step", f"takes {format_ns(calibration.step_overhead_ns)} to start and end"
    if len(calibration.reference_ns) > 1 and calibration.remote_ns:
        yield (
            "a further device",
            f"adds {format_ns(calibration.partition_overhead_ns)} of the first one's time, and "
            f"{format_ns(calibration.remote_ns)} for its start and the news of its end",
        )
    if calibration.quantum_ns:
        yield (
            "a busy device",
            f"turns to copies after {format_ns(calibration.quantum_ns)} of ops, and back",
        )
    if calibration.wake_ns:
        yield (
            "a device at rest",
            f"takes {format_ns(calibration.wake_ns)} longer to receive a copy",
        )
    if calibration.memory is not None:
        yield (
            "memory",
            f"gives a device alone {format_bandwidth(calibration.memory.bytes_per_s)}; beside "
            f"another one that takes {calibration.memory.ratio:.2f} times as long",
        )
    yield "an op", f"that computes nothing takes {format_ns(calibration.op_ns)}"
    residuals = [
        summary.residual(ends, timing)
        for ends, timings in calibration.links.items()
        for timing in timings
    ]
    if any(abs(residual or 0) > _ROUGH_RESIDUAL for residual in residuals):
        yield ("rough", "copies follow no line here: predictions go by the copies, not by it")
    if max(calibration.reference_p90.values()) >= _UNSTEADY_P90:
        yield "unsteady", "close what else runs on these cores and calibrate again"
    if summary.kept_in is None:
        yield "not kept", "the cache directory cannot be written; analyses measure anew"
    else:
        yield "kept in", summary.kept_in
        yield "", "and used until the machine, its system or TensorFlow changes"
    if summary.cluster_file is not None:
        yield "cluster file", summary.cluster_file
        for device in summary.cluster.devices:
            if device.peak_flops_per_s is None:
                yield ("", f"to predict with it, give {device.name} a preset in it")
    cluster = f" --hardware {summary.cluster_file}" if summary.cluster_file is not None else ""
    yield "next", f"advisor analyze MODEL.py{cluster}"


def _between_hosts(summary: CalibrationSummary) -> Iterator[tuple[str, str]]:
    """Say what is alike for all devices of two hosts."""
    network = summary.calibration.network
    if network is None:
        return
    if summary.link is not None:
        yield "between hosts", _LINK_WORDS[summary.link]
    for (source, target), timing in network.at_once.items():
        yield (
            "two pairs at once",
            f"{source} → {target}: {format_bytes(timing.size_bytes)} of each "
            + _took(timing.ratio, "of one", "one wire"),
        )
    for host, remote_ns in network.remote_ns.items():
        yield (
            "a further host",
            f"{host}: a device there adds "
            f"{format_ns(summary.calibration.partition_overhead_ns)} of the first one's time, and "
            f"{format_ns(remote_ns)} for its start and the news of its end; tensors leave for it "
            "that long after the step has begun",
        )


def _overlap(summary: CalibrationSummary) -> Iterator[tuple[str, str]]:
    """Say how much of the largest copy is work of the cores at its ends, over all links."""
    timings = [
        [timing for timing in summary.calibration.links[ends] if timing.send_ns is not None]
        for ends in summary.links()
    ]
    largest = [max(each, key=lambda timing: timing.size_bytes) for each in timings if each]
    known = [
        (timing.send_ns / timing.copy_ns, timing.receive_ns / timing.copy_ns)
        for timing in largest
        if timing.copy_ns > 0 and timing.send_ns is not None and timing.receive_ns is not None
    ]
    if not known:
        yield (
            "copies and ops",
            "overlap by an unknown part: no device is a core of its own here, so what a copy "
            "costs the cores cannot be told from what else they do",
        )
        return
    size = format_bytes(max(timing.size_bytes for timing in largest))
    # Pieces of tensors that follow each other overlap, so that work can be more than the time.
    sender, receiver = (format_share(min(max(shares), 1.0)) for shares in zip(*known, strict=True))
    yield (
        "copies and ops",
        f"overlap in part, since the cores move the bytes: in a copy of {size} the sender's works "
        f"for {sender} of the time and the receiver's for {receiver}; ops pass beside the rest",
    )


def _took(ratio: float | None, as_what: str, twice: str) -> str:
    if ratio is None:
        return "took no time above the noise"
    return f"take {ratio:.2f} times as long as {as_what} (1: no hindrance, 2: {twice})"


def _work(work: CopyWork) -> str:
    return f"{format_ns(work.per_copy_ns)} + {format_ns(work.ns_per_byte * _BYTES_PER_MB)}/MB"


def _signed(share: float | None) -> str:
    if share is None:
        return "?"
    return f"{share * 100:+.0f} %".replace("+0 ", "0 ").replace("-0 ", "0 ")
