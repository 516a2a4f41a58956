"""Files of an analysis on a host: written and read in pieces, below one folder and nowhere else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from placement_advisor.errors import AdvisorError, full_disk

# Small enough that a call need not wait long behind it on a slow line (0.3 s at 10 Mbit/s), large
# enough that what else a piece costs does not count.
PIECE_BYTES = 256_000

Parts = tuple[str, ...]


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

    def put(self, number: int, parts: Parts, piece: bytes, more: bool) -> str:
        """Write a piece of a file, behind what is there already if it is one ``more``.

        ``parts`` lead to it: the name of what is sent, and the rest of the way if that is a folder.
        Returns the path of what is sent, in a folder of its own for each ``number``.

        Raises:
            AdvisorError: it cannot be written.
            ValueError: the parts lead elsewhere.
        """
        folder = self._folder / f"sent-{number}"
        path = folder / below(parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab" if more else "wb") as file:
                file.write(piece)
        except OSError as error:
            raise _unwritten(error) from None
        return str(folder / parts[0])

    def names(self, path: str) -> tuple[Parts, ...] | None:
        """Return the ways to all files below a folder, None if it is a file.

        Raises:
            AdvisorError: it is not there, or lies elsewhere.
        """
        found = self._below(path)
        if found.is_file():
            return None
        files = sorted(each for each in found.rglob("*") if each.is_file())
        return tuple(each.relative_to(found).parts for each in files)

    def get(self, path: str, parts: Parts, offset: int) -> bytes:
        """Return a piece of a file from ``offset`` on; it is empty behind the end.

        Raises:
            AdvisorError: it is not there, or lies elsewhere.
        """
        found = self._below(str(Path(path, *parts)))
        try:
            with found.open("rb") as file:
                file.seek(offset)
                return file.read(PIECE_BYTES)
        except OSError as error:
            raise AdvisorError(f"{path} cannot be read: {error.strerror}") from None

    def _below(self, path: str) -> Path:
        found = Path(path).resolve()
        if not found.is_relative_to(self._folder):
            raise AdvisorError(f"{path} does not lie in the folder of this analysis")
        if not found.exists():
            raise AdvisorError(f"{path}: no such file")
        return found


def below(parts: Parts) -> Path:
    """Return the way that parts lead downwards.

    Raises:
        ValueError: they lead elsewhere.
    """
    return Path(*map(_name, parts))


def _unwritten(error: OSError) -> AdvisorError:
    return full_disk(str(error)) or AdvisorError(f"{error.filename}: {error.strerror}")


def _name(part: str) -> str:
    if part in ("", ".", "..") or "/" in part or "\0" in part:
        raise ValueError(f"{part!r} is no name of a file")
    return part
