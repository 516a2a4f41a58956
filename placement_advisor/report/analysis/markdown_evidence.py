"""The evidence in ``report.md``: copies, activities, prediction errors, testbed and method.

Each function yields the parts of one section; a candidate without the evidence yields nothing.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from placement_advisor.graph.name_patterns import first_names
from placement_advisor.measurement.measurement import SizeBasis
from placement_advisor.report.analysis.expected_errors import analysis_error
from placement_advisor.report.analysis.markdown_syntax import escape, table
from placement_advisor.report.analysis.tables import (
    ACTIVITY_HEADINGS,
    NOTHING,
    REPORT_ACTIVITIES,
    activity_rows,
    bytes_text,
    candidate_figures,
    copy_share,
    error_text,
    longer_text,
    own_process_line,
)
from placement_advisor.simulator.events import carried
from placement_advisor.units import (
    copies_text,
    format_bandwidth,
    format_bytes,
    format_ns,
    format_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.measurement.measurement import Measurement, StepProfile
    from placement_advisor.measurement.verification import Verification
    from placement_advisor.report.analysis.tables import StepFigures
    from placement_advisor.simulator.schedule import Schedule

MAX_MOVED_OPS = 10
_METHOD_HEADINGS = (
    "Candidate",
    "Rounds",
    "Steps",
    "Warm-ups apart",
    "Step min / median / max",
    "Profiled step",
    "Variables verified against single",
    "Ops moved by TensorFlow",
)


def copies(analysis: Analysis) -> Iterable[str]:
    """Yield a matrix of source against target, measured where there is a profile."""
    devices = analysis.testbed.cluster.device_names()
    for candidate in analysis.candidates:
        profile = candidate.profile
        if profile is not None:
            basis, cells = "measured", _measured_cells(profile)
        elif candidate.predicted is not None:
            basis, cells = "simulated", _simulated_cells(candidate.predicted)
        else:
            continue
        title = f"**{escape(candidate.name)}** ({basis})"
        if not cells:
            yield f"{title}: no copies."
            continue
        rows = [
            [escape(source), *(cells.get((source, target), NOTHING) for target in devices)]
            for source in devices
        ]
        yield f"{title}, from row to column:\n\n" + table(["From", *map(escape, devices)], rows)


def _measured_cells(profile: StepProfile) -> dict[tuple[str, str], str]:
    return {
        (total.source, total.target): (
            f"{copies_text(total.count)}, {format_bytes(total.size_bytes)}"
            f"{' by shapes' if total.size_basis is SizeBasis.SHAPES else ''}<br>"
            f"{format_ns(total.time_ns)}, {format_ns(total.exposed_ns)} exposed"
        )
        for total in profile.transfers
    }


def _simulated_cells(schedule: Schedule) -> dict[tuple[str, str], str]:
    seen = schedule.copies
    pairs = sorted({(copy.source, copy.target) for copy in seen})
    cells = {}
    for pair in pairs:
        copies = [copy for copy in seen if (copy.source, copy.target) == pair]
        size = carried(each for copy in copies for each in copy.transfers)
        shown = format_bytes(size.amount, is_floor=size.is_floor)
        time = format_ns(schedule.under_way_ns[pair])
        cells[pair] = f"{copies_text(len(copies))}, {shown}<br>{time}"
    return cells


def activities(analysis: Analysis) -> Iterable[str]:
    """Yield compute against copies and the nvprof-style table of each profiled candidate."""
    for candidate in analysis.candidates:
        profile = candidate.profile
        if profile is None:
            continue
        share = copy_share(profile)
        if share is None:
            yield f"**{escape(candidate.name)}**: the profile is empty."
            continue
        rows = [
            [f"**{escape(cell)}**" if row.is_copy else escape(cell) for cell in row.cells]
            for row in activity_rows(profile.activities, REPORT_ACTIVITIES)
        ]
        yield (
            f"**{escape(candidate.name)}**: compute {format_share(1 - share)}, copies "
            f"{format_share(share)} of all activity in {len(profile.step_ns)} profiled steps "
            "(copies in bold):\n\n" + table(ACTIVITY_HEADINGS, rows)
        )


def errors(analysis: Analysis) -> Iterable[str]:
    """Yield predicted against measured figures of each candidate that has both."""
    headings = ["Per step", "Predicted (simulated)", "Measured", "Error"]
    for candidate in analysis.candidates:
        predicted, ran = candidate_figures(candidate)
        if predicted is not None and ran is not None:
            rows = table(headings, _error_rows(predicted, ran))
            yield f"**{escape(candidate.name)}**\n\n{rows}"


def _error_rows(predicted: StepFigures, ran: StepFigures) -> Iterable[list[str]]:
    yield _times("step", predicted.step_ns, ran.step_ns)
    compute_ns = ran.compute_ns or {}
    for device, time_ns in (predicted.compute_ns or {}).items():
        yield _times(f"compute {escape(device)}", time_ns, compute_ns.get(device))
    yield _times("copy time", predicted.transfer_ns, ran.transfer_ns)
    yield _times("exposed copy time", predicted.exposed_ns, ran.exposed_ns)
    yield [
        "copies",
        _count(predicted.transfer_count),
        _count(ran.transfer_count),
        error_text(predicted.transfer_count, ran.transfer_count),
    ]
    yield [
        "bytes across",
        bytes_text(predicted),
        bytes_text(ran),
        error_text(predicted.transfer_bytes, ran.transfer_bytes),
    ]

    for device, held_bytes in ran.step_memory_bytes.items():
        expected = predicted.step_memory_bytes.get(device)
        yield [
            f"memory {escape(device)}, above what stays",
            format_bytes(expected),
            format_bytes(held_bytes),
            error_text(expected, held_bytes),
        ]


def _times(label: str, predicted_ns: int | None, measured_ns: int | None) -> list[str]:
    return [
        label,
        format_ns(predicted_ns),
        format_ns(measured_ns),
        error_text(predicted_ns, measured_ns),
    ]


def _count(count: int | None) -> str:
    return "?" if count is None else str(count)


def testbed(analysis: Analysis) -> Iterable[str]:
    """Yield devices, links and versions."""
    bed = analysis.testbed
    devices = ", ".join(f"{escape(d.name)} ({escape(d.kind)})" for d in bed.cluster.devices)
    yield (
        f"{escape(bed.description)}: {devices}; testbed {escape(bed.kind)}, "
        f"fingerprint {escape(bed.fingerprint)}."
    )
    if bed.cluster.links:
        rows = [
            [
                f"{escape(link.source)} → {escape(link.target)}",
                format_ns(link.latency_ns),
                format_bandwidth(link.bandwidth_bytes_per_s),
                link.basis.value,
            ]
            for link in bed.cluster.links
        ]
        yield table(["Link", "Latency", "Bandwidth", "Basis"], rows)
    yield (
        f"TensorFlow {escape(analysis.tensorflow_version)}, "
        f"placement-advisor {escape(analysis.advisor_version)}."
    )


def method(analysis: Analysis) -> Iterable[str]:
    """Yield how steps were timed, and what the profiler did to them."""
    runs = [(c.name, c.measured) for c in analysis.candidates if c.measured and c.measured.step_ns]
    alone = own_process_line(analysis)
    if not runs or alone is not None:
        reason = escape(analysis.testbed.not_run or "no candidate ran")
        timed = "No step was timed" if alone is None else f"{alone[0].upper()}{alone[1:]}"
        yield f"{timed} ({reason}). Every step time above is simulated."
        if (told_of := analysis_error(analysis)) is not None:
            yield escape(told_of)
        return
    several = f"They ran in {analysis.sessions} sessions. " if analysis.sessions > 1 else ""
    yield (
        "Timing rounds of all candidates are interleaved and run without the profiler; warm-up "
        f"steps are kept apart. {several}Ratios are paired by round; their 95 % intervals allow "
        "for rounds that are added while in doubt and for the choice among candidates. Copies and "
        "compute come from separate, profiled steps."
    )
    yield table(_METHOD_HEADINGS, [_method_row(name, run) for name, run in runs])


def _method_row(name: str, run: Measurement) -> list[str]:
    return [
        escape(name),
        str(run.round_count),
        str(len(run.step_ns)),
        f"{len(run.warmup_ns)} (longest {format_ns(max(run.warmup_ns, default=None))})",
        " / ".join(format_ns(pick(run.step_ns)) for pick in (min, median, max)),
        longer_text(run.profiler_overhead),
        _verified(run.verification),
        _moved(run.moved_ops),
    ]


def _verified(found: Verification | None) -> str:
    if found is None:
        return NOTHING
    shown = found.variables - len(found.unverified)
    held = ", draws and statistics held equal" if found.held_equal else ""
    return f"{shown} of {found.variables} (within {found.relative_difference:.1e}{held})"


def _moved(ops: Sequence[str]) -> str:
    if not ops:
        return "none"
    return first_names([escape(op) for op in ops], MAX_MOVED_OPS)
