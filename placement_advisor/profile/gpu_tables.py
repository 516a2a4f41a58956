"""Tables of what GPUs did, as nvprof and Nsight Systems print them: summaries, and GPU traces.

A *summary* has sums and no timeline: what was hidden behind what, idle times and steps are not
known, and times of one device may add up to more than its wall time. GPUs are told apart where the
tool was asked to (``--print-summary-per-gpu``); else all of them are one. API calls are time of the
host and left out. A *GPU trace* has a row for each kernel and copy, so all is known but steps and
tensors.

What is before, between and behind the rows, such as comments, is passed over. A unit stands in the
heading, in the row below it, or in the cell.

Source: NVIDIA, Profiler User's Guide, summary and trace modes; Nsight Systems User Guide, `nsys
stats` and its reports ``cuda_gpu_kern_sum``, ``cuda_gpu_mem_time_sum`` and ``cuda_gpu_trace``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from itertools import chain, islice
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.errors import AdvisorError
from placement_advisor.profile import copy_names, device_trace, formats
from placement_advisor.profile.totals import DeviceTotals, ProfileTotals, TimeTotals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from placement_advisor.measurement.measurement import Activity


ALL_GPUS = "all GPUs"

# A summary has a few thousand rows at most.
_MOST_ROWS = 100_000
# Kernels and routes of a trace: a real one has some thousand of them.
_MOST_NAMES = 100_000

_SECTION = re.compile(r"==\d+==\s*(?P<section>[A-Z][A-Za-z ]+):")
_DEVICE = re.compile(r'==\d+==\s*Device ".*\((\d{1,9})\)"')
_DEVICE_CELL = re.compile(r".*\((\d{1,9})\)")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
# nvprof ends the name of a kernel with the number of its launch.
_LAUNCH = re.compile(r" \[\d+\]$")
_API = "API calls"
_API_COUNT = "num calls"
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LAST_NS = 2**61
_PREFIXES = ("", "K", "M", "G", "T")
_UNITS = frozenset({"%", *_NS, *(f"{p}B{per}" for p in _PREFIXES for per in ("", "/s"))})
_DECIMAL, _BINARY = 1_000, 1_024
# Copies by which it is told which of the two a prefix stands for.
_WEIGHED = 10_000
# Cells of devices that are kept, which repeat row by row.
_MOST_DEVICES = 100


def summary_totals(path: str, form: formats.FileFormat, lines: Iterable[str]) -> ProfileTotals:
    """Return what a summary says.

    Raises:
        AdvisorError: it has no row of what GPUs did, or more than any summary.
    """
    rows = list(islice(_rows(lines), _MOST_ROWS + 1))
    if len(rows) > _MOST_ROWS:
        raise AdvisorError(
            f"{path} ({form}) has more than {_MOST_ROWS:,} rows",
            hint="give the summary that is printed when the program ends, not a list of events",
        )
    if not rows:
        raise AdvisorError(
            f"{path} ({form}) shows no GPU at work",
            hint="give what is printed when the program ends, its table of GPU activities whole",
        )
    total_ns: defaultdict[str, defaultdict[device_trace.DeviceUse, int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for device, row in rows:
        total_ns[device][device_trace.USE_OF[copy_names.copy_kind(row.name)]] += row.total_ns
    notes = ["a summary has sums alone: what hides behind what is not known"]
    often = Counter((device, row.name) for device, row in rows)
    twice = sorted({name for (_, name), count in often.items() if count > 1})
    if twice:
        notes.append(
            f"{twice[0]} has several rows, as if the file held several summaries: all are counted"
        )
    return ProfileTotals(
        path=path,
        steps_from="none",
        step_ns=(),
        warm_up_steps=0,
        span_ns=None,
        devices=tuple(
            DeviceTotals(
                device=device,
                total={
                    use: TimeTotals(time_ns=of_use[use], exposed_ns=None)
                    for use in device_trace.DeviceUse
                },
                idle_ns=None,
                per_step=None,
                idle_per_step_ns=None,
            )
            for device, of_use in total_ns.items()
        ),
        routes=(),
        by_host=(),
        tensors=(),
        activities=device_trace.longest_first(row for _, row in rows),
        waits=(),
        notes=tuple(notes),
    )


def gpu_trace(path: str, form: formats.FileFormat, lines: Iterable[str]) -> device_trace.Trace:
    """Return what a GPU trace says.

    Raises:
        AdvisorError: it shows no GPU at work, or has more names than a trace has.
    """
    found, table = device_trace.GpuRuns(), _Table()
    copies = _copies(lines, table, found, f"{path} ({form})")
    first = list(islice(copies, _WEIGHED))
    thousand = _thousand(first)
    for copy in chain(first, copies):
        found.add_copy(
            copy.gpu,
            copy.kind,
            copy.span,
            sender=copy.sender,
            receiver=copy.receiver,
            size_bytes=copy.size.bytes(thousand or _DECIMAL),
        )
    if found.are_none:
        raise AdvisorError(
            f"{path} ({form}) shows no GPU at work",
            hint="give the whole table of a program that ran on a GPU, its headings included",
        )
    notes = []
    if table.unread:
        is_one = "is" if table.unread == 1 else "are"
        notes.append(f"{table.unread:,} of its rows cannot be read, and {is_one} left out")
    if thousand is None and any(copy.size.prefix for copy in first):
        notes.append("a kB is taken for 1,000 bytes; should it be 1,024, copies have 2 to 7 % more")
    return found.built(path, (), "none", notes)


def _copies(
    lines: Iterable[str], table: _Table, found: device_trace.GpuRuns, what: str
) -> Iterator[_Copy]:
    """Yield the copies of a GPU trace; its kernels are added to what is found."""
    for line in lines:
        if len(found) > _MOST_NAMES:
            raise AdvisorError(
                f"{what} has more than {_MOST_NAMES:,} names of kernels", hint="record fewer steps"
            )
        cells = table.row(line)
        # Calls of the host, which a trace of the API adds, have no device.
        if cells is None or (gpu := _gpu(table.text(cells, "device"))) is None:
            continue
        span = table.span(cells)
        if span is None:
            table.unread += 1
            continue
        name = table.text(cells, "name")
        kind = copy_names.copy_kind(name)
        if kind is None or kind is copy_names.CopyKind.COLLECTIVE:
            found.add_kernel(gpu, _LAUNCH.sub("", name), span)
        else:
            yield _Copy(gpu, kind, span, *table.copied(cells))


class _Size(NamedTuple):
    """A number with a unit of bytes: ``prefix`` is the power of a thousand, or of 1,024."""

    number: float | None
    prefix: int

    def bytes(self, thousand: int) -> int | None:
        """Return the bytes, None if they are not known or more than any copy has."""
        if self.number is None:
            return None
        size_bytes = round(self.number * thousand**self.prefix)
        return size_bytes if size_bytes <= copy_names.LARGEST_NUMBER else None


class _Copy(NamedTuple):
    gpu: int
    kind: copy_names.CopyKind
    span: tuple[int, int]
    sender: int | None
    receiver: int | None
    size: _Size
    rate: _Size


def _thousand(copies: Sequence[_Copy]) -> int | None:
    """Return what a prefix stands for: 1,000, or 1,024; None if nothing tells.

    Sizes and rates with prefixes of their own tell: 1 MB in 100 µs are 10 GB/s, or 9.77.
    """
    found = []
    for copy in copies:
        steps = copy.rate.prefix - copy.size.prefix
        took_ns = copy.span[1] - copy.span[0]
        if copy.size.number and copy.rate.number and steps and took_ns:
            ratio = copy.size.number / took_ns * 1e9 / copy.rate.number
            found.append(ratio ** (1 / steps))
    if not found:
        return None
    return _BINARY if median(found) > (_DECIMAL * _BINARY) ** 0.5 else _DECIMAL


class _Table:
    """The columns of the heading that was met last, and the units below it.

    ``unread`` counts rows that say nothing.
    """

    def __init__(self) -> None:
        self.unread = 0
        self._columns: Mapping[str, formats.Column] = {}
        self._width = 0
        self._may_have_units = False

    def row(self, line: str) -> list[str] | None:
        """Return the cells of a row, None if the line is none; what heads rows is noted."""
        columns = formats.columns_of(line)
        if columns is not None:
            self._columns, self._may_have_units = columns, True
            self._width = 1 + max(column.place for column in columns.values())
            return None
        cells = formats.cells_of(line) if self._columns else []
        if not self._columns or len(cells) < self._width:
            return None
        if self._may_have_units and {cell.strip() for cell in cells} <= {"", *_UNITS}:
            self._columns = {
                name: formats.Column(column.place, cells[column.place].strip() or column.unit)
                for name, column in self._columns.items()
            }
            return None
        self._may_have_units = False
        return cells

    def has(self, name: str) -> bool:
        """Return whether there is such a column."""
        return name in self._columns

    def _column(self, names: Sequence[str]) -> formats.Column | None:
        return next((self._columns[name] for name in names if name in self._columns), None)

    def text(self, cells: Sequence[str], *names: str) -> str:
        """Return the cell of the first of these columns that there is, "" if there is none."""
        column = self._column(names)
        return "" if column is None else cells[column.place].strip()

    def time_ns(self, cells: Sequence[str], *names: str) -> int | None:
        """Return a time, None if it is none."""
        column = self._column(names)
        if column is None:
            return None
        number = _number(cells[column.place])
        unit_ns = _NS.get(column.unit)
        if number is None or unit_ns is None or number * unit_ns > _LAST_NS:
            return None
        return round(number * unit_ns)

    def span(self, cells: Sequence[str]) -> tuple[int, int] | None:
        """Return when a row began and ended, None if it does not say."""
        start_ns, took_ns = self.time_ns(cells, "start"), self.time_ns(cells, "duration")
        return None if start_ns is None or took_ns is None else (start_ns, start_ns + took_ns)

    def copied(self, cells: Sequence[str]) -> tuple[int | None, int | None, _Size, _Size]:
        """Return sender, receiver, size and rate of a copy."""
        sender, receiver = (_gpu(self.text(cells, end)) for end in ("src dev", "dst dev"))
        size, rate = self._size(cells, "size", "bytes"), self._size(cells, "throughput")
        return sender, receiver, size, rate

    def _size(self, cells: Sequence[str], *names: str) -> _Size:
        column = self._column(names)
        unit = "" if column is None else column.unit.removesuffix("/s").removesuffix("B")
        if column is None or unit not in _PREFIXES:
            return _Size(None, 0)
        return _Size(_number(cells[column.place]), _PREFIXES.index(unit))


def _rows(lines: Iterable[str]) -> Iterator[tuple[str, Activity]]:
    """Yield the rows of summaries, with their devices."""
    device, section, table = ALL_GPUS, "", _Table()
    for line in lines:
        if found := _DEVICE.match(line):
            device = f"GPU:{found[1]}"
        elif found := _SECTION.match(line):
            section = found["section"]
        elif found := formats.SUMMARY_ROW.fullmatch(line):
            section = found["section"] or section
            if section == _API:
                continue
            _, *times, name = found.groups()
            total, calls, least, most = times[:2], times[2], times[5:7], times[7:9]
            yield device, _activity(name, int(calls), *(_ns(*t) for t in (total, least, most)))
        elif (cells := table.row(line)) is not None and not table.has(_API_COUNT):
            section = table.text(cells, "type") or section
            times_ns = [
                table.time_ns(cells, *names)
                for names in (("total time", "time"), ("min", "minimum"), ("max", "maximum"))
            ]
            calls = _number(table.text(cells, "calls", "instances", "count", "operations"))
            known_ns = [time_ns for time_ns in times_ns if time_ns is not None]
            if section != _API and calls is not None and len(known_ns) == len(times_ns):
                name = table.text(cells, "name", "operation")
                yield device, _activity(name, int(calls), *known_ns)


def _activity(name: str, calls: int, total_ns: int, min_ns: int, max_ns: int) -> Activity:
    use = device_trace.USE_OF[copy_names.copy_kind(name)]
    return device_trace.activity(name, use, calls, total_ns, min_ns, max_ns)


@lru_cache(_MOST_DEVICES)
def _gpu(cell: str) -> int | None:
    """Return the number behind a device's name, None if there is none."""
    found = _DEVICE_CELL.fullmatch(cell)
    number = int(found[1]) if found else None
    return None if number is None or number >= device_trace.MOST_GPUS else number


def _number(cell: str) -> float | None:
    found = _NUMBER.fullmatch(cell.strip())
    return float(found[0]) if found else None


def _ns(number: str, unit: str) -> int:
    return round(float(number) * _NS[unit])
