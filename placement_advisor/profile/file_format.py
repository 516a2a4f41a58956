"""What the file of a recorded profile is, told by its content; its name decides where that cannot.

Left out: who wrote a Chrome trace, which its events tell to their reader.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.errors import AdvisorError
from placement_advisor.files.foreign_file import open_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# How the names of XSpace files end, whatever wrote them.
SUFFIX = ".xplane.pb"
READ = (
    "what can be read: a log folder of TensorBoard (with plugins/profile in it), an XSpace file "
    f"({SUFFIX}), a Chrome trace of TensorBoard or PyTorch (.json, .json.gz), and summaries and "
    "GPU traces of nvprof and Nsight Systems"
)


class FileFormat(StrEnum):
    """What a profile is recorded in; the value is what it is called."""

    XSPACE = "TensorFlow profile (XSpace)"
    TRACE_VIEWER = "Chrome trace (TensorBoard's trace viewer)"
    PYTORCH = "PyTorch trace (Kineto)"
    CHROME = "Chrome trace"
    NVPROF_SUMMARY = "nvprof summary"
    NVPROF_TRACE = "nvprof GPU trace"
    NSIGHT_SUMMARY = "Nsight Systems summary"
    NSIGHT_TRACE = "Nsight Systems GPU trace"


_HEAD_BYTES = 65_536
_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\0"
# The number of a plane within an XSpace, and that a length follows: one byte.
_PLANE = b"\x0a"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Bytes that no text has; logs have tabs, page breaks, and escapes for colours.
_NO_TEXT = re.compile("[\0-\x07\x0b\x0e-\x1a\x1c-\x1f]")
_JSON = re.compile(r"\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\]\[{]|$))")
_OP_GRAPH = re.compile(r'\{"schema_version":\d+,"ops":')
# Kineto's own fact, the first of a PyTorch trace.
_KINETO = re.compile(r'\s*\{\s*"schemaVersion"')
# What a program printed before nvprof's table, or the table itself.
_MOST_TEXT = 50_000_000
_LONGEST_LINE = 20_000

_TIME = r"(\d{1,15}(?:\.\d{1,15})?)(ns|us|ms|s)"
SUMMARY_ROW = re.compile(
    rf"(?:(?P<section>[A-Z][A-Za-z ]+):)?\s*\d{{1,3}}\.\d+%\s+{_TIME}\s+(\d{{1,15}})"
    rf"\s+{_TIME}\s+{_TIME}\s+{_TIME}\s+(\S.*)"
)
_RESULT = "Profiling result:"
_COLUMN = re.compile(r"(.*?)\s*(?:\((\S*)\))?")
_COUNTS = frozenset({"calls", "instances", "count", "operations", "num calls"})
# Tables in columns of blanks, whose cells cannot be told apart for sure.
_UNREAD_TABLES = (
    (
        re.compile(r"\s*Start\s+Duration\s+Grid Size"),
        "an nvprof GPU trace in columns of blanks",
        "record it with nvprof --print-gpu-trace --csv",
    ),
    (
        re.compile(r"\s*(?:Time ?\(%\)\s+Total Time|Start \(\w+\)\s+Duration \(\w+\))\s"),
        "a table of Nsight Systems in columns of blanks",
        "write it with nsys stats --format csv",
    ),
)


class Column(NamedTuple):
    """Where a column stands in its rows, and the unit in its heading, "" if there is none."""

    place: int
    unit: str


def columns_of(line: str) -> Mapping[str, Column] | None:
    """Return the columns by name if the line heads a table, as CSV, of what GPUs did."""
    if "Name" not in line and "Operation" not in line:
        return None
    found: dict[str, Column] = {}
    for place, cell in enumerate(cells_of(line)):
        parts = _COLUMN.fullmatch(cell.strip())
        name, unit = (parts[1].lower(), parts[2] or "") if parts else (cell, "")
        # The share of the time stands beside the time, under the same name.
        found.setdefault("share" if unit == "%" else name, Column(place, unit))
    is_trace = {"start", "duration", "name"} <= set(found)
    is_summary = bool(found.keys() & {"time", "total time"} and found.keys() & _COUNTS)
    return found if is_trace or is_summary else None


def cells_of(line: str) -> list[str]:
    """Return the cells of a line of CSV, none if it is no such line."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text that are not empty, in the encoding that its mark says.

    Raises:
        OSError: it cannot be read.
    """
    with open_plain(path) as file:
        mark = file.read(len(codecs.BOM_UTF8))
        file.seek(0)
        text = io.TextIOWrapper(file, _encoding(mark), "replace")
        while line := text.readline(_LONGEST_LINE):
            if not line.isspace():
                yield line.strip()


def format_of(path: Path) -> FileFormat:
    """Return what a file is; who wrote a Chrome trace may be known only once it is read.

    Raises:
        AdvisorError: it cannot be read, or is none of these; the message says what it is.
    """
    try:
        with open_plain(path) as file:
            stored = file.read(_HEAD_BYTES)
        is_packed = stored.startswith(_GZIP)
        head = _unpacked(path, stored) if is_packed else stored
        found = _told(path, head, is_packed=is_packed)
    except OSError as error:
        raise AdvisorError(f"cannot read the profile {path}: {error.strerror}") from error
    if found is not None:
        return found
    if path.name.endswith(SUFFIX):
        # As it was named; its reader says what is wrong with it.
        return FileFormat.XSPACE
    raise AdvisorError(f"{path} is not a profile: nothing in it says of what kind", hint=READ)


def _unpacked(path: Path, stored: bytes) -> bytes:
    """Return what a packed file begins with."""
    try:
        return zlib.decompressobj(wbits=31).decompress(stored, _HEAD_BYTES)
    except zlib.error as error:
        raise AdvisorError(
            f"{path} is packed (gzip), and corrupt: {error}",
            hint="copy it again from where it was saved",
        ) from error


def _told(path: Path, head: bytes, *, is_packed: bool) -> FileFormat | None:
    if not head:
        raise AdvisorError(f"the profile {path} is empty", hint="record it again")
    if head.startswith(_SQLITE):
        raise AdvisorError(
            f"{path} is a database (SQLite), as nvprof -o and Nsight Systems write them",
            hint="write its GPU trace as CSV: nvprof --import-profile FILE --print-gpu-trace "
            "--csv, or nsys stats --report cuda_gpu_trace --format csv FILE",
        )
    text = head.decode(_encoding(head), "replace")
    is_text = _NO_TEXT.search(text) is None
    if is_text and _OP_GRAPH.match(text):
        raise AdvisorError(
            f"{path} is an op graph, which `advisor trace` writes, and no profile",
            hint="give it with --graph, beside the profile",
        )
    if is_text and _JSON.match(text):
        return FileFormat.PYTORCH if _KINETO.match(text) else FileFormat.CHROME
    if is_packed:
        raise AdvisorError(
            f"{path} is packed (gzip), and what is in it is no Chrome trace",
            hint=f"if it is another profile, unpack it: gunzip {path}",
        )
    if is_text:
        return _table(path)
    return FileFormat.XSPACE if head.startswith(_PLANE) else None


def _table(path: Path) -> FileFormat | None:
    """Return of which table the first line that tells is."""
    has_result, read = False, 0
    for line in text_lines(path):
        read += len(line)
        if read > _MOST_TEXT:
            break
        has_result |= _RESULT in line
        for heading, what, how in _UNREAD_TABLES:
            if heading.match(line):
                raise AdvisorError(f"{path} is {what}, which cannot be read", hint=how)
        if SUMMARY_ROW.fullmatch(line):
            return FileFormat.NVPROF_SUMMARY
        if (columns := columns_of(line)) is not None:
            is_nsight = any(column.unit not in ("", "%") for column in columns.values())
            if "start" in columns:
                return FileFormat.NSIGHT_TRACE if is_nsight else FileFormat.NVPROF_TRACE
            return FileFormat.NSIGHT_SUMMARY if is_nsight else FileFormat.NVPROF_SUMMARY
    return FileFormat.NVPROF_SUMMARY if has_result else None


def _encoding(head: bytes) -> str:
    return "utf-16" if head.startswith(_UTF16) else "utf-8-sig"
