"""Chrome traces of GPUs, as TensorBoard or PyTorch's Kineto saves them, are read as a `Trace`.

The events tell which tool wrote the file. In TensorBoard's, the process is a plane
(``/device:GPU:0``) and the thread a stream; in Kineto's, the category tells kernels from copies,
and the arguments name the GPU. Only TensorBoard's tell steps, by ``group_id``. Times are
microseconds with three decimals.

The list of events is read one member at a time, as the whole would take ten times its size in
memory: numba finds where each value ends, and `json` parses it. Text between members is not
checked.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.compiled import compiled
from placement_advisor.errors import AdvisorError
from placement_advisor.files.untrusted import mapped
from placement_advisor.profile.copy_names import LARGEST_NUMBER, CopyKind, copied_bytes, destination
from placement_advisor.profile.device_trace import MOST_GPUS, GpuRuns, widen
from placement_advisor.profile.formats import FileFormat
from placement_advisor.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap
    from pathlib import Path

    from numpy.typing import NDArray

    from placement_advisor.profile.device_trace import Trace

    Bytes = NDArray[np.uint8]


# A member of a trace is some hundred bytes long; arguments may hold a stack or a shape.
_LONGEST_MEMBER = 1_000_000
_CORRUPT = -1
_QUOTE, _BACKSLASH, _COMMA, _COLON, _LAST_SPACE = 0x22, 0x5C, 0x2C, 0x3A, 0x20
_OPEN_LIST, _CLOSE_LIST, _OPEN_OBJECT, _CLOSE_OBJECT = 0x5B, 0x5D, 0x7B, 0x7D
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@compiled()
def _next_value(data: Bytes, at: int) -> tuple[int, int]:
    """Return beginning and end of the first value from a place on.

    The two are equal at the end of a list or object, and `_CORRUPT` where a value does not end.
    """
    end = len(data)
    while at < end and (data[at] <= _LAST_SPACE or data[at] in (_COMMA, _COLON)):
        at += 1
    start, depth = at, 0
    while at < end:
        byte = data[at]
        at += 1
        if byte == _QUOTE:
            while at < end and data[at] != _QUOTE:
                at += 2 if data[at] == _BACKSLASH else 1
            at += 1
            if at > end:
                break
        elif byte in (_OPEN_LIST, _OPEN_OBJECT):
            depth += 1
        elif byte in (_CLOSE_LIST, _CLOSE_OBJECT):
            if depth == 0:
                return start, at - 1
            depth -= 1
        elif depth == 0 and (byte <= _LAST_SPACE or byte in (_COMMA, _COLON)):
            return start, at - 1
        elif depth == 0:
            continue
        if depth == 0:
            return start, at
    return _CORRUPT, _CORRUPT


def list_start(data: Bytes, key: str) -> int | None:
    """Return where a document's list begins: all of it, or what it has under a key.

    None if there is no list. Raises `ValueError` if the document does not end.
    """
    start, _ = _value(data, 3 if data[:3].tobytes() == _BYTE_ORDER_MARK else 0)
    if data[start] == _OPEN_LIST:
        return start
    if data[start] != _OPEN_OBJECT:
        return None
    wanted, at = json.dumps(key).encode(), start + 1
    while True:
        name, at = _value(data, at)
        if name == at:
            return None
        is_wanted = data[name:at].tobytes() == wanted
        start, at = _value(data, at)
        if is_wanted:
            return start if data[start] == _OPEN_LIST else None


def members(data: Bytes, start: int, containing: bytes = b"") -> Iterator[Any]:
    """Yield the members of the list that begins at a place, if their text contains some bytes.

    Raises `ValueError` where one is no JSON, or longer than any event is.
    """
    at = start + 1
    while True:
        first, at = _value(data, at)
        if first == at:
            return
        if at - first > _LONGEST_MEMBER:
            raise ValueError(f"the event at byte {first} has {at - first:,} bytes")
        text = data[first:at].tobytes()
        if containing in text:
            yield json.loads(text)


def _value(data: Bytes, at: int) -> tuple[int, int]:
    start, end = _next_value(data, at)
    if start == _CORRUPT:
        raise ValueError("it ends within a value")
    return start, end


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
# Traces pack to a tenth or a thirtieth of their size, what is meant to fill the memory to less than
# a hundredth; small ones are harmless.
_MOST_TIMES_PACKED = 100
_HARMLESS_BYTES = 10_000_000
_CHUNK_BYTES = 1_000_000


def read_chrome_trace(path: Path) -> tuple[FileFormat, Trace]:
    """Read a Chrome trace, packed or not, one event at a time; say who wrote it.

    Raises:
        AdvisorError: it cannot be read, is none, shows no GPU at work, has more names than a trace
            has, or is packed more densely than one.
    """
    try:
        data = _content(path)
        start = list_start(data, "traceEvents") if len(data) else None
        if start is None:
            raise AdvisorError(
                f"{path} is JSON and not a Chrome trace: it has no list of traceEvents",
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
    return found.form, found.built()


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
        kind = self._runs.kind(name)
        if kind is None or kind is CopyKind.COLLECTIVE:
            self._runs.add_kernel(gpu, name, span)
            step = _number(arguments.get("group_id"))
            if step is not None and kind is None:
                widen(self._steps, step, *span)
        else:
            edge = arguments.get("edge_name")
            receiver = _gpu_number(arguments.get("toDevice"))
            if receiver is None:
                receiver = destination(str(arguments.get("memcpy_details", "")))
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
    return copied_bytes(str(arguments.get("memcpy_details", "")))


def _gpu_number(value: object) -> int | None:
    number = _number(value)
    return None if number is None or number >= MOST_GPUS else number


def _number(value: object) -> int | None:
    """Return a whole number that is not negative, as a number or a text of it; else None."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= LARGEST_NUMBER else None
