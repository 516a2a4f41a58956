"""A Chrome trace of GPUs as a trace: what TensorBoard's trace viewer saves, or PyTorch's Kineto.

Of TensorBoard's, the process is a plane (``/device:GPU:0``) and the thread a stream; of Kineto's,
the category tells kernels and copies, and the arguments the GPU. Steps are told by ``group_id``
(TensorBoard) alone. Times are microseconds with three decimals.

Source: Trace Event Format (Google); the arguments of copies as Kineto writes them.
"""

from __future__ import annotations

import gzip
import re
import zlib
from array import array
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_file import mapped
from placement_advisor.profile.json_members import list_start, members
from placement_advisor.profile.spans import Spans
from placement_advisor.profile.timeline.copy_kinds import (
    LARGEST_NUMBER,
    CopyKind,
    copied_bytes,
    copy_kind,
    destination,
)
from placement_advisor.profile.timeline.device_trace import (
    UNKNOWN_BYTES,
    USE_OF,
    Copied,
    Route,
    TraceBuilder,
    gpu_route,
    widen,
)
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.profile.timeline.device_trace import Trace

    Bytes = NDArray[np.uint8]

_GPU = re.compile(r"/device:GPU:(\d{1,3})(?!\d)")
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_NS_PER_US = 1_000
_LAST_US = 2**51
# More than any computer has; each takes memory of its own.
_MOST_GPUS = 1_000
# Kernels, tensors, steps, threads and routes together: a real trace has some thousand of them.
_MOST_NAMES = 100_000
# Traces pack to a tenth or a thirtieth of their size, what is meant to fill the memory to less than
# a hundredth; small ones are harmless.
_MOST_TIMES_PACKED = 100
_HARMLESS_BYTES = 10_000_000
_CHUNK_BYTES = 1_000_000


def read_chrome_trace(path: Path) -> Trace:
    """Read a Chrome trace, packed or not, one event at a time.

    Raises:
        AdvisorError: it cannot be read, is none, shows no GPU at work, has more names than a trace
            has, or is packed more densely than one.
    """
    try:
        data = _content(path)
        start = list_start(data, "traceEvents") if len(data) else None
        if start is None:
            raise AdvisorError(
                f"{path} is not a Chrome trace: it has no list of traceEvents",
                hint="give what TensorBoard's trace viewer or PyTorch's profiler saved",
            )
        found = _Found(path)
        for event in members(data, start, b'"M"'):
            if isinstance(event, dict):
                found.name(event)
        for event in members(data, start):
            if isinstance(event, dict):
                found.add(event)
    except (gzip.BadGzipFile, ValueError, EOFError, zlib.error, RecursionError) as error:
        raise AdvisorError(
            f"the Chrome trace {path} is corrupt: {error}",
            hint="save it again, or copy it again from where it was saved",
        ) from error
    except OSError as error:
        raise AdvisorError(f"cannot read the Chrome trace {path}: {error.strerror}") from error
    return found.built()


def _content(path: Path) -> Bytes:
    """Return the bytes of a trace, mapped or unpacked."""
    stored = mapped(path)
    if isinstance(stored, bytes) or stored[:2] != b"\x1f\x8b":
        return np.frombuffer(stored, np.uint8)
    # Unpacked once to know the size: what is too large is never in memory.
    size_bytes = len(stored)
    most, unpacked_bytes = max(_MOST_TIMES_PACKED * size_bytes, _HARMLESS_BYTES), 0
    for part in _parts(stored):
        unpacked_bytes += len(part)
        if unpacked_bytes > most:
            raise AdvisorError(
                f"{path} is packed more densely than any trace: its {format_bytes(size_bytes)} "
                f"unpack to more than {format_bytes(most)}",
                hint="if it is a trace, unpack it yourself and give the .json",
            )
    unpacked, at = np.empty(unpacked_bytes, np.uint8), 0
    for part in _parts(stored):
        unpacked[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return unpacked


def _parts(packed: mmap) -> Iterator[bytes]:
    packed.seek(0)
    with gzip.GzipFile(fileobj=packed) as file:
        while part := file.read(_CHUNK_BYTES):
            yield part


class _Found:
    """What was found in a trace so far, in columns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._builder = TraceBuilder()
        # Planes are told by their process, streams by process and thread.
        self._gpu_of: dict[str, int] = {}
        self._streams: set[tuple[str, str]] = set()
        self._kinds: dict[str, CopyKind | None] = {}
        self._gpus: set[int] = set()
        self._steps: dict[int, tuple[int, int]] = {}
        self._tensors: set[str] = set()
        # Start and end, one after the other; of copies the size and the tensor behind them.
        self._runs: defaultdict[tuple[int, str], array[int]]
        self._runs = defaultdict(lambda: array("q"))
        self._copies: defaultdict[Route, array[int]] = defaultdict(lambda: array("q"))

    def name(self, event: dict[str, Any]) -> None:
        """Note which process is a GPU, or which thread a stream."""
        arguments = event.get("args")
        if event.get("ph") != "M" or not isinstance(arguments, dict):
            return
        name, process = str(arguments.get("name", "")), str(event.get("pid"))
        if event.get("name") == "process_name" and (match := _GPU.search(name)):
            self._gpu_of[process] = int(match[1])
        elif event.get("name") == "thread_name" and name.startswith("Stream"):
            self._streams.add((process, str(event.get("tid"))))
        self._limit()

    def add(self, event: dict[str, Any]) -> None:
        """Add what a GPU did; pass over all else."""
        if event.get("ph") != "X" or (span := _span(event)) is None:
            return
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        gpu = self._gpu_of.get(str(event.get("pid")))
        if gpu is not None and (str(event.get("pid")), str(event.get("tid"))) not in self._streams:
            return
        if gpu is None and str(event.get("cat", "")).lower() in _GPU_CATEGORIES:
            gpu = _gpu_number(arguments.get("device", arguments.get("inDevice")))
        if gpu is None:
            return
        self._gpus.add(gpu)
        name = str(event.get("name", ""))
        kind = self._kinds.setdefault(name, copy_kind(name))
        if kind is None or kind is CopyKind.COLLECTIVE:
            self._runs[gpu, name].extend(span)
            step = _number(arguments.get("group_id"))
            if step is not None and kind is None:
                widen(self._steps, step, *span)
        else:
            edge = arguments.get("edge_name")
            tensor = None if edge is None else str(edge)
            copied = (*span, _size(arguments), self._builder.tensor(tensor))
            self._copies[_route(kind, gpu, arguments)].extend(copied)
            if tensor is not None:
                self._tensors.add(tensor)
        self._limit()

    def _limit(self) -> None:
        named = (self._gpu_of, self._streams, self._runs, self._kinds, self._steps, self._tensors)
        if sum(map(len, named)) + len(self._copies) > _MOST_NAMES:
            raise AdvisorError(
                f"the Chrome trace {self._path} has more than {_MOST_NAMES:,} names of kernels, "
                "tensors and threads, and steps",
                hint="record fewer steps",
            )

    def built(self) -> Trace:
        """Return the trace."""
        if not self._gpus:
            raise AdvisorError(
                f"the Chrome trace {self._path} shows no GPU at work",
                hint="GPUs are planes /device:GPU:N, or events of the category kernel",
            )
        for gpu in sorted(self._gpus):
            self._builder.device(f"GPU:{gpu}")
        for (gpu, name), columns in self._runs.items():
            use = USE_OF[self._kinds[name]]
            start_ns, end_ns = np.array(columns, np.int64).reshape(-1, 2).T
            self._builder.used(f"GPU:{gpu}", use, Spans(start_ns, end_ns))
            self._builder.row(name, use).add_each(end_ns - start_ns)
        for route, columns in self._copies.items():
            start_ns, end_ns, size_bytes, tensor = np.array(columns, np.int64).reshape(-1, 4).T
            copied = Copied(spans=Spans(start_ns, end_ns), size_bytes=size_bytes, tensor=tensor)
            self._builder.copies(route, copied)
            self._builder.row(route.kind, USE_OF[route.kind]).add_each(end_ns - start_ns)
        spans = sorted(self._steps.values())
        cuts = [start_ns for start_ns, _ in spans]
        cuts += [max(end_ns for _, end_ns in spans)] if spans else []
        return self._builder.build(str(self._path), cuts, "group_id")


def _span(event: dict[str, Any]) -> tuple[int, int] | None:
    try:
        start_us, took_us = float(event["ts"]), float(event.get("dur", 0))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (abs(start_us) < _LAST_US and 0 <= took_us < _LAST_US):
        return None
    return round(start_us * _NS_PER_US), round((start_us + took_us) * _NS_PER_US)


def _route(kind: CopyKind, gpu: int, arguments: dict[str, Any]) -> Route:
    sender, receiver = (_gpu_number(arguments.get(end)) for end in ("fromDevice", "toDevice"))
    if receiver is None:
        receiver = destination(str(arguments.get("memcpy_details", "")))
    return gpu_route(kind, f"GPU:{gpu}", sender=_device(sender), receiver=_device(receiver))


def _device(number: int | None) -> str | None:
    return None if number is None else f"GPU:{number}"


def _size(arguments: dict[str, Any]) -> int:
    size_bytes = _number(arguments.get("bytes"))
    if size_bytes is None:
        size_bytes = copied_bytes(str(arguments.get("memcpy_details", "")))
    return UNKNOWN_BYTES if size_bytes is None else size_bytes


def _gpu_number(value: object) -> int | None:
    number = _number(value)
    return None if number is None or number >= _MOST_GPUS else number


def _number(value: object) -> int | None:
    """Return a whole number that is not negative, as a number or a text of it; else None."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= LARGEST_NUMBER else None
