"""Copies of files to a host and from it, in pieces, several of which are under way at once."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.remote_hosts.scratch_files import PIECE_BYTES, below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from placement_advisor.remote_hosts.questions import Answer, Questions
    from placement_advisor.remote_hosts.scratch_files import Parts

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
    """Copy a file of a host, or all files below a folder, to here.

    Raises:
        AdvisorError: it is not there, lies elsewhere, or the host is gone.
    """
    names = questions.ask("names", path).result().value
    if names is None:
        _fetch(questions, path, (), local)
        return
    local.mkdir(parents=True, exist_ok=True)
    for parts in names:
        target = local / below(parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        _fetch(questions, path, parts, target)


def _fetch(questions: Questions, path: str, parts: Parts, local: Path) -> None:
    with local.open("wb") as file:
        offsets = itertools.count(0, PIECE_BYTES)
        for answer in _ahead(questions.ask("get", path, parts, offset) for offset in offsets):
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
