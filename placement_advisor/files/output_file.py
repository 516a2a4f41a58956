"""A file that a command leaves behind: complete, or as it was before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from placement_advisor.errors import AdvisorError
from placement_advisor.files.own_folders import own_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NAME = "file"


@contextlib.contextmanager
def output_file(
    path: Path, *, option: str, read: Path | None = None
) -> Iterator[Callable[[Callable[[Path], None]], None]]:
    """Claim a place for a file; give what puts one there, made by the function that it is given.

    ``option`` is where the user can choose another path, ``read`` what the command reads,
    if anything. Left out: who else writes there meanwhile.

    Raises:
        AdvisorError: the file cannot be written, or is no plain file, or is the one that is read.
    """
    hint = f"choose another file with {option}"
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no plain file"
        raise AdvisorError(f"{path}: cannot be written: it is {what}", hint=hint)
    if read is not None and path.exists() and read.exists() and path.samefile(read):
        raise AdvisorError(f"{path}: is an input of this command and is not overwritten", hint=hint)
    with contextlib.ExitStack() as stack:
        try:
            staging = stack.enter_context(own_folder(path.parent))
        except OSError as error:
            raise AdvisorError(
                f"{path}: cannot be written: {path.parent}: {error.strerror}", hint=hint
            ) from None

        def put(make: Callable[[Path], None]) -> None:
            try:
                make(staging / _NAME)
                (staging / _NAME).replace(path)
            except OSError as error:
                message = f"{path}: cannot be written: {error.strerror}"
                raise AdvisorError(message, hint=hint) from None

        yield put


def holding(text: str) -> Callable[[Path], None]:
    """Return what makes a file of that text; half a character, as a path may hold, is replaced."""

    def make(path: Path) -> None:
        path.write_text(text, encoding="utf-8", errors="replace")

    return make
