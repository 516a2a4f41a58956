"""Chrome traces of GPUs, as TensorBoard or PyTorch's Kineto saves them, are read as a `Trace`.

The events tell which tool wrote the file. In TensorBoard's, the process is a plane
(``/device:GPU:0``) and the thread a stream; in Kineto's, the category tells kernels from copies,
and the arguments name the GPU. Only TensorBoard's tell steps, by ``group_id``. Times are
microseconds with three decimals.

The list of events is read one event at a time from pieces of the text, as the whole would take ten
times its size in memory. Text before the list and between events is not checked.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from typing import TYPE_CHECKING, Any

from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import open_plain
from placement_advisor.profile import copy_names
from placement_advisor.profile.device_trace import MOST_GPUS, GpuRuns, Trace, widen
from placement_advisor.profile.formats import GZIP, FileFormat
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# An event of a trace is some hundred characters long; arguments may hold a stack or a shape.
_LONGEST_EVENT = 1_000_000
_WHOLE_LIST = re.compile(r"\s*\[")
_LIST = re.compile(r'"traceEvents"\s*:\s*\[')
# The beginning of a list may lie in two pieces.
_KEY_CHARS = 100
_BETWEEN = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()
# Traces pack to a tenth or a thirtieth of their size, what is meant to keep a computer busy to less
# than a hundredth; small ones are harmless.
_MOST_TIMES_PACKED = 100
_HARMLESS_CHARS = 10_000_000


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace, packed or not.

    Raises:
        AdvisorError: it has no list of events, or is packed more densely than a trace.
        OSError: it cannot be read.
        ValueError: it is no JSON, ends too soon, or has a longer event than any trace.
    """
    pieces = _pieces(path)
    text = next(pieces, "")
    start = _WHOLE_LIST.match(text) or _LIST.search(text)
    while start is None:
        if not (piece := next(pieces, "")):
            raise AdvisorError(
                f"{path} is JSON and not a Chrome trace: it has no list of traceEvents",
                hint="give what TensorBoard's trace viewer or PyTorch's profiler saved",
            )
        text = text[-_KEY_CHARS:] + piece
        start = _LIST.search(text)
    at = start.end()
    while True:
        between = _BETWEEN.match(text, at)
        at = at if between is None else between.end()
        if text.startswith("]", at):
            return
        try:
            event, at = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            # What ends with the piece may go on in the next one.
            if len(text) - at > _LONGEST_EVENT or not (piece := next(pieces, "")):
                raise
            text, at = text[at:] + piece, 0
            continue
        if isinstance(event, dict):
            yield event


def _pieces(path: Path) -> Iterator[str]:
    """Yield the text of a file piece by piece, unpacked if it is packed."""
    with open_plain(path) as file:
        is_packed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        text = io.TextIOWrapper(gzip.GzipFile(fileobj=file) if is_packed else file, "utf-8-sig")
        unpacked = 0
        while piece := text.read(_LONGEST_EVENT):
            unpacked += len(piece)
            if is_packed and unpacked > max(_MOST_TIMES_PACKED * file.tell(), _HARMLESS_CHARS):
                raise AdvisorError(
                    f"{path} is packed more densely than any trace: its first "
                    f"{format_bytes(file.tell())} unpack to {format_bytes(unpacked)}",
                    hint="if it is a trace, unpack it yourself and give the .json",
                )
            yield piece


_GPU = re.compile(r"/device:GPU:(\d{1,3})(?!\d)")
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
# What Kineto calls its events on the host, beside those on GPUs, and TensorFlow 1 its own.
_KINETO_CATEGORIES = frozenset(
    {"cpu_op", "user_annotation", "cuda_runtime", "python_function", "ac2g", "operator", "runtime"}
)
_TIMELINE_PROCESS = re.compile(r"/(?:job:|device:|gpu:|cpu:).* Compute")
_NS_PER_US = 1_000
_LAST_US = 2**51
# Kernels, tensors, steps, threads and routes together: a real trace has some thousand of them.
_MOST_NAMES = 100_000


def read_chrome_trace(path: Path) -> tuple[FileFormat, Trace]:
    """Read a Chrome trace, packed or not, one event at a time; say who wrote it.

    Raises:
        AdvisorError: it cannot be read, is none, shows no GPU at work, has more names than a trace
            has, or is packed more densely than one.
    """
    found = _Found(path)
    try:
        for event in events(path):
            found.name(event)
        for event in events(path):
            found.add(event)
    except (gzip.BadGzipFile, ValueError, EOFError, zlib.error, RecursionError) as error:
        raise AdvisorError(
            f"the Chrome trace {path} is corrupt: {error}",
            hint="save it again, or copy it again from where it was saved",
        ) from error
    except OSError as error:
        raise AdvisorError(f"cannot read the Chrome trace {path}: {error.strerror}") from error
    return found.form, found.built()


class _Found:
    """What was found in a trace so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs = GpuRuns()
        # Planes are told by their process, streams by process and thread.
        self._gpu_of: dict[str, int] = {}
        self._streams: set[tuple[str, str]] = set()
        self._steps: dict[int, tuple[int, int]] = {}
        self._is_timeline = False
        self.form = FileFormat.CHROME

    def name(self, event: dict[str, Any]) -> None:
        """Note which process is a GPU, or which thread a stream."""
        arguments = event.get("args")
        if event.get("ph") != "M" or not isinstance(arguments, dict):
            return
        name, process = str(arguments.get("name", "")), str(event.get("pid"))
        if event.get("name") == "process_name":
            self._is_timeline |= _TIMELINE_PROCESS.fullmatch(name) is not None
            if match := _GPU.search(name):
                self._gpu_of[process] = int(match[1])
                self.form = FileFormat.TRACE_VIEWER
        elif event.get("name") == "thread_name" and name.startswith("Stream"):
            self._streams.add((process, str(event.get("tid"))))
        self._limit()

    def add(self, event: dict[str, Any]) -> None:
        """Add what a GPU did; of all else only who writes such events is noted."""
        if event.get("ph") != "X" or (span := _span(event)) is None:
            return
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        category = str(event.get("cat", "")).lower()
        gpu = self._gpu_of.get(str(event.get("pid")))
        if gpu is not None and (str(event.get("pid")), str(event.get("tid"))) not in self._streams:
            return
        if gpu is None and category in _GPU_CATEGORIES:
            gpu = _gpu_number(arguments.get("device", arguments.get("inDevice")))
        if gpu is None:
            if category in _KINETO_CATEGORIES:
                self.form = FileFormat.PYTORCH
            return
        if category in _GPU_CATEGORIES:
            self.form = FileFormat.PYTORCH
        name = str(event.get("name", ""))
        kind = copy_names.copy_kind(name)
        if kind is None or kind is copy_names.CopyKind.COLLECTIVE:
            self._runs.add_kernel(gpu, name, span)
            step = _number(arguments.get("group_id"))
            if step is not None and kind is None:
                widen(self._steps, step, *span)
        else:
            edge = arguments.get("edge_name")
            receiver = _gpu_number(arguments.get("toDevice"))
            if receiver is None:
                receiver = copy_names.destination(str(arguments.get("memcpy_details", "")))
            self._runs.add_copy(
                gpu,
                kind,
                span,
                sender=_gpu_number(arguments.get("fromDevice")),
                receiver=receiver,
                size_bytes=_size(arguments),
                tensor=None if edge is None else str(edge),
            )
        self._limit()

    def _limit(self) -> None:
        others = len(self._gpu_of) + len(self._streams) + len(self._steps)
        if len(self._runs) + others > _MOST_NAMES:
            raise AdvisorError(
                f"the {self.form} {self._path} has more than {_MOST_NAMES:,} names of kernels, "
                "tensors and threads, and steps",
                hint="record fewer steps",
            )

    def built(self) -> Trace:
        """Return the trace."""
        if self._runs.are_none and self._is_timeline:
            raise AdvisorError(
                f"{self._path} is a timeline of TensorFlow 1, which cannot be read",
                hint="record the steps with tf.profiler, which writes .xplane.pb files",
            )
        if self._runs.are_none:
            raise AdvisorError(
                f"{self._path} ({self.form}) shows no GPU at work",
                hint="GPUs are planes /device:GPU:N, or events of the category kernel",
            )
        spans = sorted(self._steps.values())
        cuts = [start_ns for start_ns, _ in spans]
        cuts += [max(end_ns for _, end_ns in spans)] if spans else []
        return self._runs.built(str(self._path), cuts, "group_id")


def _span(event: dict[str, Any]) -> tuple[int, int] | None:
    try:
        start_us, took_us = float(event["ts"]), float(event.get("dur", 0))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not (abs(start_us) < _LAST_US and 0 <= took_us < _LAST_US):
        return None
    return round(start_us * _NS_PER_US), round((start_us + took_us) * _NS_PER_US)


def _size(arguments: dict[str, Any]) -> int | None:
    size_bytes = _number(arguments.get("bytes"))
    if size_bytes is not None:
        return size_bytes
    return copy_names.copied_bytes(str(arguments.get("memcpy_details", "")))


def _gpu_number(value: object) -> int | None:
    number = _number(value)
    return None if number is None or number >= MOST_GPUS else number


def _number(value: object) -> int | None:
    """Return a whole number that is not negative, as a number or a text of it; else None."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= copy_names.LARGEST_NUMBER else None
