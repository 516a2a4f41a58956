"""The summary that nvprof prints, as totals.

It has sums and no timeline: what was hidden behind what, idle times and steps are not known, and
times of one device may add up to more than its wall time. ``--print-summary-per-gpu`` tells GPUs
apart; else all of them are one. API calls are time of the host and left out.

Source: NVIDIA, Profiler User's Guide, summary mode.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_file import open_plain
from placement_advisor.measurement.measurement import Activity
from placement_advisor.profile.timeline.copy_kinds import copy_kind
from placement_advisor.profile.timeline.device_trace import USE_OF, Use
from placement_advisor.profile.totals import Amount, DeviceTotals, ProfileTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_RESULT = b"Profiling result:"
ALL_GPUS = "all GPUs"

# A summary has a few thousand rows at most, of which names are the longest part: C++ signatures.
_LARGEST_BYTES = 50_000_000
_MOST_ROWS = 100_000
_LONGEST_LINE = 20_000

_TIME = r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|ms|s)"
_ROW = re.compile(
    rf"(?:(?P<section>[A-Z][A-Za-z ]+):)?\s*\d{{1,3}}\.\d+%\s+{_TIME}\s+(\d{{1,15}})"
    rf"\s+{_TIME}\s+{_TIME}\s+{_TIME}\s+(\S.*)"
)
_SECTION = re.compile(r"==\d+==\s*(?P<section>[A-Z][A-Za-z ]+):")
_DEVICE = re.compile(r'==\d+==\s*Device ".*\((\d{1,9})\)"')
_API = "API calls"
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def summary_lines(path: Path) -> Iterator[str] | None:
    """Return the lines of a summary, None if the file is something else.

    Raises:
        AdvisorError: it cannot be read.
    """
    try:
        with open_plain(path) as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
    return _lines(data) if len(data) <= _LARGEST_BYTES and _RESULT in data else None


def _lines(data: bytes) -> Iterator[str]:
    file = io.BytesIO(data)
    while line := file.readline(_LONGEST_LINE):
        if not line.isspace():
            yield line.decode("utf-8", "replace")


def nvprof_totals(path: str, lines: Iterable[str]) -> ProfileTotals:
    """Return what a summary says.

    Raises:
        AdvisorError: it has no row of what GPUs did, or more than any summary.
    """
    rows = list(islice(_rows(lines), _MOST_ROWS + 1))
    if len(rows) > _MOST_ROWS:
        raise AdvisorError(
            f"the nvprof summary {path} has more than {_MOST_ROWS:,} rows",
            hint="give the summary that nvprof prints when the program ends, not a list of events",
        )
    if not rows:
        raise AdvisorError(
            f"the nvprof summary {path} shows no GPU at work",
            hint="give what nvprof prints when the program ends, its table of GPU activities whole",
        )
    total_ns: defaultdict[str, defaultdict[Use, int]] = defaultdict(lambda: defaultdict(int))
    for device, row in rows:
        total_ns[device][USE_OF[copy_kind(row.name)]] += row.total_ns
    return ProfileTotals(
        path=path,
        steps_from="none",
        step_ns=(),
        warm_up_steps=0,
        span_ns=None,
        devices=tuple(
            DeviceTotals(
                device=device,
                total={use: Amount(time_ns=of_use[use], exposed_ns=None) for use in Use},
                idle_ns=None,
                per_step=None,
                idle_per_step_ns=None,
            )
            for device, of_use in total_ns.items()
        ),
        routes=(),
        by_host=(),
        tensors=(),
        activities=tuple(
            sorted((row for _, row in rows), key=lambda row: (-row.total_ns, row.name))
        ),
        waits=(),
        notes=("an nvprof summary has sums alone: what hides behind what is not known",),
    )


def _rows(lines: Iterable[str]) -> Iterable[tuple[str, Activity]]:
    device, section = ALL_GPUS, ""
    for untrimmed in lines:
        line = untrimmed.strip()
        if found := _DEVICE.match(line):
            device = f"GPU:{found[1]}"
        elif found := _SECTION.match(line):
            section = found["section"]
        elif found := _ROW.fullmatch(line):
            section = found["section"] or section
            if section == _API:
                continue
            _, *times, name = found.groups()
            total, calls, least, most = times[:2], times[2], times[5:7], times[7:9]
            kind = copy_kind(name)
            yield (
                device,
                Activity(
                    name=name,
                    calls=int(calls),
                    total_ns=_ns(*total),
                    min_ns=_ns(*least),
                    max_ns=_ns(*most),
                    is_copy=USE_OF[kind] not in (Use.COMPUTE, Use.COLLECTIVE),
                ),
            )


def _ns(number: str, unit: str) -> int:
    return round(float(number) * _NS[unit])
