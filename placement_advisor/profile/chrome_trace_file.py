"""A Chrome trace of GPUs as a trace: what TensorBoard's trace viewer saves, or PyTorch's Kineto.

Of TensorBoard's, the process is a plane (``/device:GPU:0``) and the thread a stream; of Kineto's,
the category tells kernels and copies, and the arguments the GPU. Steps are told by ``group_id``
(TensorBoard) alone. Times are microseconds with three decimals.

Source: Trace Event Format (Google); the arguments of copies as Kineto writes them.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.copies import (
    LARGEST_NUMBER,
    CopyKind,
    copied_bytes,
    copy_kind,
    destination,
)
from placement_advisor.profile.spans import Spans
from placement_advisor.profile.trace import (
    UNKNOWN_BYTES,
    USE_OF,
    Copied,
    Route,
    TraceBuilder,
    gpu_route,
    widen,
)

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.profile.trace import Trace

_GPU = re.compile(r"/device:GPU:(\d{1,9})")
_GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_NS_PER_US = 1_000
_LAST_US = 2**51


def read_chrome_trace(path: Path) -> Trace:
    """Read a Chrome trace, packed or not.

    Raises:
        AdvisorError: it cannot be read, is none, or shows no GPU at work.
    """
    content = _content(path)
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise AdvisorError(f"{path} is no Chrome trace: it has no list of traceEvents")
    found = [event for event in events if isinstance(event, dict)]
    gpu_of, streams = _planes(found)
    runs: defaultdict[tuple[int, str], list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    for event in found:
        if event.get("ph") != "X" or (span := _span(event)) is None:
            continue
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        gpu = gpu_of.get(str(event.get("pid")))
        if gpu is not None and not streams.get((str(event.get("pid")), str(event.get("tid")))):
            continue
        if gpu is None and str(event.get("cat", "")).lower() in _GPU_CATEGORIES:
            gpu = _number(arguments.get("device", arguments.get("inDevice")))
        if gpu is not None:
            runs[gpu, str(event.get("name", ""))].append((*span, arguments))
    if not runs:
        raise AdvisorError(
            f"the Chrome trace {path} shows no GPU at work",
            hint="GPUs are planes /device:GPU:N, or events of the category kernel",
        )
    return _built(path, runs)


def _built(path: Path, runs: dict[tuple[int, str], list[tuple[int, int, dict[str, Any]]]]) -> Trace:
    builder = TraceBuilder()
    steps: dict[int, tuple[int, int]] = {}
    for gpu in sorted({gpu for gpu, _ in runs}):
        builder.device(f"GPU:{gpu}")
    routes: defaultdict[Route, list[tuple[int, int, int, int]]] = defaultdict(list)
    for (gpu, name), of_name in runs.items():
        kind = copy_kind(name)
        if kind is None or kind is CopyKind.COLLECTIVE:
            start_ns, end_ns = (np.array([run[i] for run in of_name], np.int64) for i in (0, 1))
            builder.used(f"GPU:{gpu}", USE_OF[kind], Spans(start_ns, end_ns))
            builder.row(name, USE_OF[kind]).add_each(end_ns - start_ns)
        for start, end, arguments in of_name:
            step = _number(arguments.get("group_id"))
            if step is not None and kind is None:
                widen(steps, step, start, end)
            if kind is not None and kind is not CopyKind.COLLECTIVE:
                tensor = arguments.get("edge_name")
                routes[_route(kind, gpu, arguments)].append(
                    (
                        start,
                        end,
                        _size(arguments),
                        builder.tensor(None if tensor is None else str(tensor)),
                    )
                )
    for route, copies in routes.items():
        start_ns, end_ns, size_bytes, tensor_place = np.array(copies, np.int64).T
        spans = Spans(start_ns, end_ns)
        builder.copies(route, Copied(spans=spans, size_bytes=size_bytes, tensor=tensor_place))
        builder.row(route.kind, USE_OF[route.kind]).add_each(end_ns - start_ns)
    spans_of_steps = sorted(steps.values())
    cuts = [start for start, _ in spans_of_steps]
    cuts += [max(end for _, end in spans_of_steps)] if spans_of_steps else []
    return builder.build(str(path), cuts, "group_id")


def _content(path: Path) -> Any:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return json.loads(data)
    except OSError as error:
        raise AdvisorError(f"cannot read the Chrome trace {path}: {error}") from error
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise AdvisorError(f"the Chrome trace {path} is corrupt: {error}") from error


def _planes(events: list[dict[str, Any]]) -> tuple[dict[str, int], dict[tuple[str, str], bool]]:
    """Return the GPU of each process, and whether each thread is a stream."""
    gpu_of: dict[str, int] = {}
    streams: dict[tuple[str, str], bool] = {}
    for event in events:
        arguments = event.get("args")
        if event.get("ph") != "M" or not isinstance(arguments, dict):
            continue
        name, process = str(arguments.get("name", "")), str(event.get("pid"))
        if event.get("name") == "process_name" and (match := _GPU.search(name)):
            gpu_of[process] = int(match[1])
        elif event.get("name") == "thread_name":
            streams[process, str(event.get("tid"))] = name.startswith("Stream")
    return gpu_of, streams


def _span(event: dict[str, Any]) -> tuple[int, int] | None:
    try:
        start_us, took_us = float(event["ts"]), float(event.get("dur", 0))
    except (KeyError, TypeError, ValueError):
        return None
    if not (abs(start_us) < _LAST_US and 0 <= took_us < _LAST_US):
        return None
    return round(start_us * _NS_PER_US), round((start_us + took_us) * _NS_PER_US)


def _route(kind: CopyKind, gpu: int, arguments: dict[str, Any]) -> Route:
    sender, receiver = _number(arguments.get("fromDevice")), _number(arguments.get("toDevice"))
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


def _number(value: object) -> int | None:
    """Return a whole number that is not negative, as a number or a text of it; else None."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number <= LARGEST_NUMBER else None
