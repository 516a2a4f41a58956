"""Files of an analysis on a host, copied there and back in pieces.

Several pieces are under way at once.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.errors import AdvisorError, TestbedError, full_disk
from placement_advisor.files.untrusted import MisfitError
from placement_advisor.processes.children import ChildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


# Small enough that a call need not wait long behind it on a slow line (0.3 s at 10 Mbit/s), large
# enough that what else a piece costs does not count.
PIECE_BYTES = 256_000


class ScratchFiles:
    """What lies below a folder that goes with the analysis."""

    def __init__(self, folder: Path) -> None:
        """Serve this folder."""
        self._folder = folder.resolve()

    def new_folder(self, name: str) -> str:
        """Make a folder whose name begins so; return its path.

        Raises:
            AdvisorError: it cannot be made.
            ValueError: this is no name.
        """
        try:
            return tempfile.mkdtemp(prefix=f"{_name(name)}-", dir=self._folder)
        except OSError as error:
            raise _unwritten(error) from None

    def put(self, number: int, parts: tuple[str, ...], piece: bytes, more: bool) -> str:
        """Write a piece of a file, behind what is there already if it is one ``more``.

        ``parts`` lead to it: the name of what is sent, and the rest of the way if that is a folder.
        Returns the path of what is sent, in a folder of its own for each ``number``.

        Raises:
            AdvisorError: it cannot be written.
            ValueError: the parts lead elsewhere.
        """
        folder = self._folder / f"sent-{number}"
        path = folder.joinpath(*map(_name, parts))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab" if more else "wb") as file:
                file.write(piece)
        except OSError as error:
            raise _unwritten(error) from None
        return str(folder / parts[0])

    def get(self, path: str, offset: int) -> bytes:
        """Return a piece of a file from ``offset`` on; it is empty behind the end.

        Raises:
            AdvisorError: it is not there, or lies elsewhere.
        """
        found = Path(path).resolve()
        if not found.is_relative_to(self._folder):
            raise AdvisorError(f"{path} does not lie in the folder of this analysis")
        try:
            with found.open("rb") as file:
                file.seek(offset)
                return file.read(PIECE_BYTES)
        except OSError as error:
            raise AdvisorError(f"{path} cannot be read: {error.strerror}") from None


def _unwritten(error: OSError) -> AdvisorError:
    return full_disk(str(error)) or AdvisorError(f"{error.filename}: {error.strerror}")


def _name(part: str) -> str:
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        raise ValueError(f"{part!r} is no name of a file")
    return part


class HostLostError(TestbedError):
    """A host does not answer any more; the message says which, and why."""


class Answer(NamedTuple):
    """What a question was answered with, and when that came, by `time.time_ns`."""

    value: Any
    came_ns: int


class Questions:
    """Questions to one host; each is answered, or fails when the host is lost."""

    def __init__(self, host: str, send: Callable[[object], None]) -> None:
        """Ask the host of this name by sending messages."""
        self.host, self._send = host, send
        self._numbers = itertools.count()
        self._open: dict[int, Future[Answer]] = {}
        self._lost: HostLostError | None = None
        self._one_changes = threading.Lock()

    @property
    def lost(self) -> str | None:
        """Why nothing is answered any more, None if all is."""
        return None if self._lost is None else self._lost.message

    def ask(self, kind: str, *args: object) -> Future[Answer]:
        """Ask something and return where the answer will be.

        That raises `HostLostError` if none comes, `AdvisorError` where the user can do something
        about what went wrong, else `ChildError`.

        Raises:
            TypeError: an argument cannot be sent.
        """
        asked: Future[Answer] = Future()
        with self._one_changes:
            number = next(self._numbers)
            if self._lost is not None:
                asked.set_exception(self._lost)
                return asked
            self._open[number] = asked
        self._send(("ask", number, kind, args))
        return asked

    def answered(self, number: int, outcome: str, value: object, came_ns: int) -> None:
        """Take an answer.

        Raises:
            MisfitError: nobody has asked for it.
        """
        with self._one_changes:
            asked = self._open.pop(number, None)
        if asked is None:
            raise MisfitError(f"an answer to question {number}, which nobody asked")
        if outcome == "returned":
            asked.set_result(Answer(value, came_ns))
        elif isinstance(value, AdvisorError):
            asked.set_exception(type(value)(f"host {self.host}: {value.message}", hint=value.hint))
        else:
            asked.set_exception(ChildError(f"host {self.host}: {value}"))

    def lose(self, lost: HostLostError) -> None:
        """Let all questions fail, those to come as well."""
        with self._one_changes:
            self._lost = lost
            left, self._open = list(self._open.values()), {}
        for asked in left:
            asked.set_exception(lost)


# A line's latency then costs little.
_PIECES_AHEAD = 4


def send(questions: Questions, number: int, path: Path) -> str:
    """Copy a file, or all files below a folder, to a host; return its path there.

    It lies in the folder of this ``number``.

    Raises:
        AdvisorError: it cannot be written there, there is none, or the host is gone.
    """
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    if not files:
        raise AdvisorError(f"{path}: no file to send to host {questions.host}")
    asked = (
        questions.ask("put", number, each.relative_to(path.parent).parts, piece, more)
        for each in sorted(files)
        for piece, more in _pieces(each)
    )
    *_, last = _ahead(asked)
    there: str = last.value
    return there


def fetch(questions: Questions, path: str, local: Path) -> None:
    """Copy a file of a host to here.

    Raises:
        AdvisorError: it is not there, lies elsewhere, or the host is gone.
    """
    with local.open("wb") as file:
        offsets = itertools.count(0, PIECE_BYTES)
        for answer in _ahead(questions.ask("get", path, offset) for offset in offsets):
            if not answer.value:
                return
            file.write(answer.value)


def _pieces(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Give a file in pieces, at least one, each with whether there was one before."""
    with path.open("rb") as file:
        yield file.read(PIECE_BYTES), False
        while piece := file.read(PIECE_BYTES):
            yield piece, True


def _ahead(asked: Iterable[Future[Answer]]) -> Iterator[Answer]:
    """Give answers in order while the next questions are under way already."""
    under_way: deque[Future[Answer]] = deque()
    for question in asked:
        under_way.append(question)
        if len(under_way) > _PIECES_AHEAD:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()
