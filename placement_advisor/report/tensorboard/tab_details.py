"""What the Placement tab shows of one candidate, as JSON: what grows with the step.

Spans refer to lanes and names by number.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.report.analysis.figures import (
    ACTIVITY_HEADINGS,
    REPORT_ACTIVITIES,
    activity_rows,
    copy_share,
)
from placement_advisor.report.pictures.bars import (
    MEASURED,
    SIMULATED,
    heading_of,
    simulated_spans,
)
from placement_advisor.simulator.events import carried
from placement_advisor.simulator.intervals import length, merged
from placement_advisor.units import format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.analysis.analysis_result import Candidate
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.measurement.measurement import Span, StepProfile, TransferTotal
    from placement_advisor.report.pictures.layer_map import LayerMap
    from placement_advisor.simulator.exposure import SeenCopy
    from placement_advisor.simulator.schedule import Schedule


def details_as_json(
    candidate: Candidate, graph: OpGraph, layers: LayerMap, devices: tuple[str, ...]
) -> dict[str, Any]:
    """Return what the tab shows of one candidate.

    ``layers`` has the device of each layer by its number, ``cuts`` the number of a flow and the
    bytes that cross; both are null for a split of the batch, whose ops are not the model's.
    """
    device_numbers: list[int | None] | None = None
    cuts: list[tuple[int, int | None]] | None = None
    if candidate.placement is not None and candidate.samples is None:
        number = {name: i for i, name in enumerate(devices)}
        device_numbers = [number.get(device) for device in layers.devices(candidate.placement)]
        cuts = list(layers.cut_bytes(graph, candidate.placement).items())
    profile = candidate.profile
    predicted = candidate.predicted
    spans = {
        SIMULATED: simulated_spans(predicted) if predicted else (),
        MEASURED: profile.timeline if profile else (),
    }
    steps_ns = {
        SIMULATED: predicted.step_ns if predicted else None,
        MEASURED: round(median(profile.step_ns)) if profile and profile.step_ns else None,
    }
    others = sorted({span.lane for some in spans.values() for span in some})
    lanes = list(dict.fromkeys([*devices, *others]))
    return {
        "layers": device_numbers,
        "cuts": cuts,
        "tensors": _tensors(predicted) if predicted else [],
        "copies": {
            "simulated": _simulated_copies(predicted) if predicted else None,
            "measured": [_copies(total) for total in profile.transfers] if profile else None,
        },
        "activities": _activities(profile) if profile else None,
        "lanes": lanes,
        "timelines": {
            which: _timeline(which, some, lanes, steps_ns[which]) if some else None
            for which, some in spans.items()
        },
    }


def _tensors(schedule: Schedule) -> list[dict[str, Any]]:
    """Return what crosses, largest first."""
    ordered = sorted(schedule.transfers, key=lambda copy: (-(copy.size_bytes or 0), copy.tensor))
    return [
        {
            "tensor": copy.tensor,
            "source": copy.source,
            "target": copy.target,
            "bytes": copy.size_bytes,
            "time_ns": copy.end_ns - copy.start_ns,
        }
        for copy in ordered
    ]


def _simulated_copies(schedule: Schedule) -> list[dict[str, Any]]:
    pairs: dict[tuple[str, str], list[SeenCopy]] = {}
    for copy in schedule.copies:
        pairs.setdefault((copy.source, copy.target), []).append(copy)
    shown = []
    for (source, target), copies in sorted(pairs.items()):
        size = carried(each for copy in copies for each in copy.transfers)
        shown.append(
            {
                "source": source,
                "target": target,
                "count": len(copies),
                "bytes": size.amount,
                "bytes_are_a_floor": size.is_floor,
                "time_ns": length(merged((copy.start_ns, copy.end_ns) for copy in copies)),
            }
        )
    return shown


def _copies(total: TransferTotal) -> dict[str, Any]:
    return {
        "source": total.source,
        "target": total.target,
        "count": total.count,
        "bytes": total.size_bytes,
        "bytes_are_a_floor": False,
        "basis": total.size_basis.value if total.size_basis else None,
        "time_ns": total.time_ns,
    }


def _activities(profile: StepProfile) -> dict[str, Any]:
    """Return what took the time of the profiled steps, in text as in the other reports."""
    share = copy_share(profile)
    parts = (
        "The profile is empty."
        if share is None
        else f"Compute {format_share(1 - share)}, copies {format_share(share)} of all activity in "
        f"{len(profile.step_ns)} profiled steps."
    )
    rows = activity_rows(profile.activities, REPORT_ACTIVITIES)
    return {
        "parts": parts,
        "head": list(ACTIVITY_HEADINGS),
        "rows": [{"cells": list(row.cells), "is_copy": row.is_copy} for row in rows],
    }


def _timeline(
    which: str, spans: Sequence[Span], lanes: list[str], step_ns: int | None
) -> dict[str, Any]:
    lane = {name: i for i, name in enumerate(lanes)}
    names = {name: i for i, name in enumerate(dict.fromkeys(span.name for span in spans))}
    ordered = sorted(spans, key=lambda span: (lane[span.lane], span.start_ns, span.end_ns))
    return {
        "heading": which if step_ns is None else heading_of(which, step_ns),
        "step_ns": step_ns,
        "names": list(names),
        # Lane, name, start, end; a lane has either ops or copies.
        "spans": [
            [lane[span.lane], names[span.name], span.start_ns, span.end_ns] for span in ordered
        ],
        "copies": sorted({lane[span.lane] for span in spans if span.is_copy}),
    }
