"""The format of a recorded profile is told by its content, and a run's files are found.

A run of XSpace files has one file for each process; any other format is one file. The name of a
file decides only where its content cannot. Which tool wrote a Chrome trace is left to its reader.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.errors import AdvisorError
from placement_advisor.files.output import BOTH, LOG_FOLDER, OVERVIEW, SIMULATED
from placement_advisor.files.untrusted import open_plain

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
GZIP = b"\x1f\x8b"
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
        is_packed = stored.startswith(GZIP)
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


# Beside the profiles of this program's workers lies that of the client, which has the steps.
CLIENT_FILE = "client.xplane.pb"

_PATTERN = f"*{SUFFIX}"
# How the names of other profiles end. Folders hold many files; only these are looked into.
_OTHER_NAMES = (".json", ".json.gz", ".csv", ".txt", ".log")
_TRACE_NAME = re.compile(r"\btrace\.json")
# So many files are looked into at most, the newest first.
_MOST_LOOKED_INTO = 1_000
# TensorFlow names a run after the moment of its recording, which outlives copying, unlike the time
# of the file.
_MOMENT = re.compile(r"\d{4}(?:_\d\d){5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """The files of one run; ``note`` says which it is of several, None where there is one.

    A Chrome trace may be anybody's, whatever its ``form``: its reader says whose it is.
    """

    files: tuple[Path, ...]
    form: FileFormat = FileFormat.XSPACE
    note: str | None = None


def recorded_run(path: Path) -> RecordedRun:
    """Return one run: the file itself, a run's folder, or the newest run below a folder.

    Below a folder XSpaces count first: viewers save what they show beside these.

    Raises:
        AdvisorError: there is none, or the file is no profile.
    """
    if not path.exists():
        raise AdvisorError(f"there is no profile {path}")
    if not path.is_dir():
        return RecordedRun(files=(path,), form=format_of(path))
    own = sorted(path.glob(_PATTERN))
    if own:
        return RecordedRun(files=tuple(own))
    found = sorted(file for file in path.rglob(_PATTERN) if not _is_made_up(file.parent))
    if not found:
        return _other_run(path)
    newest = max(found, key=_age).parent
    count = len({file.parent for file in found})
    return RecordedRun(
        files=tuple(file for file in found if file.parent == newest),
        note=f"read was {newest.relative_to(path)}, the newest of {count} runs; "
        "give the folder of another to read that"
        if count > 1
        else None,
    )


def _other_run(folder: Path) -> RecordedRun:
    """Return the newest file below a folder that is a profile of another format."""
    named = [file for file in folder.rglob("*") if file.name.endswith(_OTHER_NAMES)]
    newest = sorted(named, key=lambda file: (-file.stat().st_mtime_ns, str(file)))
    found = [
        (file, form)
        for file in newest[:_MOST_LOOKED_INTO]
        if (form := _form_within(file)) is not None
    ]
    if not found:
        raise AdvisorError(f"{folder} holds no profile, nor does a folder below it", hint=READ)
    (file, form), count = found[0], len(found)
    several = f"read was {file.relative_to(folder)}, the newest of {count} profiles; "
    return RecordedRun(
        files=(file,), form=form, note=f"{several}give another to read that" if count > 1 else None
    )


def _form_within(file: Path) -> FileFormat | None:
    """Return the format of a file that may be anything, None if it is no profile."""
    try:
        form = format_of(file)
    except AdvisorError:
        return None
    # Much else is JSON: what begins with Kineto's facts counts, and what is named as a trace.
    return None if form is FileFormat.CHROME and not _TRACE_NAME.search(file.name) else form


def _is_made_up(run: Path) -> bool:
    """Return whether a run holds a simulated step, which an analysis put beside recorded ones."""
    output = run.resolve().parents[4:5]
    is_simulated = run.name.endswith((SIMULATED, BOTH))
    return is_simulated and any((each / LOG_FOLDER / OVERVIEW).exists() for each in output)


def _age(file: Path) -> tuple[str, int, str]:
    run = file.parent.name
    return run if _MOMENT.fullmatch(run) else "", file.stat().st_mtime_ns, str(file)
