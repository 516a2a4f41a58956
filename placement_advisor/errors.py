"""What a user can cause and fix. Bugs stay ordinary exceptions."""

import errno
import os
import tempfile

# What the system says where a disk, or a user's share of it, is full.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class AdvisorError(Exception):
    """A problem that the user can fix.

    The message says what is wrong and where; ``hint`` says what to do next.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint)


class ModelError(AdvisorError):
    """The model file cannot be loaded, or holds nothing that can be analysed."""


class ScriptEndedError(ModelError):
    """A script ended by itself before its first step; what it printed last says why."""


class PlacementError(AdvisorError):
    """A placement does not fit the graph or the devices."""


class BatchSplitError(AdvisorError):
    """The batch of a step cannot be split, or not so; the message does not name the step."""


class TestbedError(AdvisorError):
    """The devices that candidates are to run on cannot be set up."""

    __test__ = False  # The name starts with "Test"; pytest must not collect it.


def full_disk(error: str) -> AdvisorError | None:
    """Return what to say of a full disk under temporary files; None if that is not the error."""
    # TensorFlow says it in words alone.
    found = [os.strerror(number) for number in NO_ROOM if os.strerror(number) in error]
    if not found:
        return None
    return AdvisorError(
        f"temporary files cannot be written in {tempfile.gettempdir()}: {found[0]}",
        hint="make room, or choose another folder with TMPDIR",
    )


def _rebuild(kind: type[AdvisorError], message: str, hint: str | None) -> AdvisorError:
    return kind(message, hint=hint)
