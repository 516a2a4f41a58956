"""What a calibration found, as text: tables of copies and of the cores, then a fact a line.

Left out: the single copies, which JSON has.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from placement_advisor.machine.calibration import REFERENCE_WIDTH
from placement_advisor.machine.testbed_plan import HostLink
from placement_advisor.report.analysis.tables import one_line, right_aligned
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

_LABEL = 18
_WIDTH = 100
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
    head = f"calibrated {one_line(summary.description)}, TensorFlow {summary.tensorflow_version}"
    tables = (_links(summary), _residuals(summary), _references(summary))
    parts = [[head], *tables, list(_facts(summary))]
    return "\n\n".join("\n".join(map(str.rstrip, part)) for part in parts) + "\n"


def _links(summary: CalibrationSummary) -> list[str]:
    rows = [("copies", "latency", "bandwidth", "sender's core", "receiver's core")]
    for ends, words in summary.links().items():
        link = summary.cluster.link(*ends)
        is_known = summary.calibration.links[ends][0].send_ns is not None
        rows.append(
            (
                one_line(words),
                format_ns(link.latency_ns),
                format_bandwidth(link.bandwidth_bytes_per_s),
                _work(link.sender) if is_known else "?",
                _work(link.receiver) if is_known else "?",
            )
        )
    return right_aligned(rows, label_width=_LABEL - 1)


def _residuals(summary: CalibrationSummary) -> list[str]:
    """Return how far a link's line is from the copies, by their size."""
    links = summary.calibration.links
    sizes = sorted({timing.size_bytes for timings in links.values() for timing in timings})
    rows = [("the line is off by", *map(format_bytes, sizes))]
    for ends, words in summary.links().items():
        found = {timing.size_bytes: summary.residual(ends, timing) for timing in links[ends]}
        rows.append((one_line(words), *(_signed(found.get(size)) for size in sizes)))
    return right_aligned(rows, label_width=_LABEL - 1)


def _facts(summary: CalibrationSummary) -> Iterator[str]:
    calibration = summary.calibration
    for (one, other), timing in calibration.both_ways.items():
        yield from _fact(
            "both ways at once",
            f"{one_line(one)} ↔ {one_line(other)}: {format_bytes(timing.size_bytes)} each way "
            + (
                "took no time above the noise"
                if timing.ratio is None
                else f"take {timing.ratio:.2f} times as long as one way "
                "(1: no hindrance, 2: in turns)"
            ),
        )
    yield from _between_hosts(summary)
    yield from _overlap(summary)
    yield from _fact("a step", f"takes {format_ns(calibration.step_overhead_ns)} to start and end")
    if len(calibration.reference_ns) > 1 and calibration.remote_ns:
        yield from _fact(
            "a further device",
            f"adds {format_ns(calibration.partition_overhead_ns)} of the first one's time, and "
            f"{format_ns(calibration.remote_ns)} for its start and the news of its end",
        )
    if calibration.quantum_ns:
        yield from _fact(
            "a busy device",
            f"turns to copies after {format_ns(calibration.quantum_ns)} of ops, and back",
        )
    if calibration.wake_ns:
        yield from _fact(
            "a device at rest",
            f"takes {format_ns(calibration.wake_ns)} longer to receive a copy",
        )
    if calibration.memory is not None:
        yield from _fact(
            "memory",
            f"gives a device alone {format_bandwidth(calibration.memory.bytes_per_s)}; beside "
            f"another one that takes {calibration.memory.ratio:.2f} times as long",
        )
    yield from _fact("an op", f"that computes nothing takes {format_ns(calibration.op_ns)}")
    residuals = [
        summary.residual(ends, timing)
        for ends, timings in calibration.links.items()
        for timing in timings
    ]
    if any(abs(residual or 0) > _ROUGH_RESIDUAL for residual in residuals):
        yield from _fact(
            "rough", "copies follow no line here: predictions go by the copies, not by it"
        )
    if max(calibration.reference_p90.values()) >= _UNSTEADY_P90:
        yield from _fact("unsteady", "close what else runs on these cores and calibrate again")
    if summary.kept_in is None:
        yield from _fact("not kept", "the cache directory cannot be written; analyses measure anew")
    else:
        yield from _fact("kept in", summary.kept_in)
        yield from _fact("", "and used until the machine, its system or TensorFlow changes")
    if summary.cluster_file is not None:
        yield from _fact("cluster file", summary.cluster_file)
        for device in summary.cluster.devices:
            if device.peak_flops_per_s is None:
                yield from _fact(
                    "", f"to predict with it, give {one_line(device.name)} a preset in it"
                )
    cluster = f" --hardware {summary.cluster_file}" if summary.cluster_file is not None else ""
    yield from _fact("next", f"advisor analyze MODEL.py{cluster}")


def _between_hosts(summary: CalibrationSummary) -> Iterator[str]:
    """Say what is alike for all devices of two hosts."""
    network = summary.calibration.network
    if network is None:
        return
    if summary.link is not None:
        yield from _fact("between hosts", _LINK_WORDS[summary.link])
    for (source, target), timing in network.at_once.items():
        yield from _fact(
            "two pairs at once",
            f"{one_line(source)} → {one_line(target)}: {format_bytes(timing.size_bytes)} of each "
            + (
                "took no time above the noise"
                if timing.ratio is None
                else f"take {timing.ratio:.2f} times as long as of one "
                "(1: no hindrance, 2: one wire)"
            ),
        )
    for host, remote_ns in network.remote_ns.items():
        yield from _fact(
            "a further host",
            f"{one_line(host)}: a device there adds "
            f"{format_ns(summary.calibration.partition_overhead_ns)} of the first one's time, and "
            f"{format_ns(remote_ns)} for its start and the news of its end; tensors leave for it "
            "that long after the step has begun",
        )


def _references(summary: CalibrationSummary) -> list[str]:
    calibration = summary.calibration
    size = f"{REFERENCE_WIDTH} × {REFERENCE_WIDTH}"
    rows = [("reference product", size, "speed", "one step in ten is slower by")]
    for name, time_ns in calibration.reference_ns.items():
        flops = summary.flops_per_s(name)
        speed = "?" if flops is None else f"{format_flops(flops)}/s"
        slower = max(0.0, calibration.reference_p90[name] - 1)
        rows.append((one_line(name), format_ns(time_ns), speed, format_share(slower)))
    return right_aligned(rows, label_width=_LABEL - 1)


def _overlap(summary: CalibrationSummary) -> Iterator[str]:
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
        yield from _fact(
            "copies and ops",
            "overlap by an unknown part: no device is a core of its own here, so what a copy "
            "costs the cores cannot be told from what else they do",
        )
        return
    size = format_bytes(max(timing.size_bytes for timing in largest))
    # Pieces of tensors that follow each other overlap, so that work can be more than the time.
    sender, receiver = (format_share(min(max(shares), 1.0)) for shares in zip(*known, strict=True))
    yield from _fact(
        "copies and ops",
        f"overlap in part, since the cores move the bytes: in a copy of {size} the sender's works "
        f"for {sender} of the time and the receiver's for {receiver}; ops pass beside the rest",
    )


def _work(work: CopyWork) -> str:
    return f"{format_ns(work.per_copy_ns)} + {format_ns(work.ns_per_byte * _BYTES_PER_MB)}/MB"


def _signed(share: float | None) -> str:
    return "?" if share is None else _no_zero_sign(f"{share * 100:+.0f} %")


def _no_zero_sign(text: str) -> str:
    return text.replace("+0 ", "0 ").replace("-0 ", "0 ")


def _fact(label: str, text: str) -> list[str]:
    return wrap(
        text,
        _WIDTH,
        initial_indent=f"{label:<{_LABEL}} ",
        subsequent_indent=" " * (_LABEL + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
