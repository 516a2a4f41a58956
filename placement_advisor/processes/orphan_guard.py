"""The guard is a small process that ends whatever the command and its fork server leave behind.

Whatever is started below it and loses its parent becomes a child of the guard (a Linux child
sub-reaper), also what the user's code has detached. When the command is killed, the guard
ends all that is left and removes the command's folders.

``python -m placement_advisor.processes.orphan_guard PARENT PROGRAM…`` becomes PROGRAM, which the
kernel ends when the thread that started it ends; PARENT is the process id of whoever starts it. A
process with threads of its own should run no Python between a start of a process and that of its
program; this does it afterwards.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from placement_advisor.files.output import owned_folders, remove_if_left_behind

# Tells which command to follow, and what to remove if that is killed.
_VARIABLE = "PLACEMENT_ADVISOR_COMMAND"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# "Look who has come, and whether the command is there"; SIGTERM says that it ends.
LOOK = signal.SIGUSR1
# A process that cannot be killed waits for a device; nobody waits for it.
_GRACE_S = 1.0
_POLL_S = 0.01


def announce(sockets: str) -> None:
    """Tell a guard that this process is about to start whom it follows.

    ``sockets`` is a folder that the command has besides those of `own_folders`.
    """
    os.environ[_VARIABLE] = json.dumps([os.getpid(), sockets, owned_folders()])


def follow_the_command() -> None:
    """Make this process the guard, and go on in a child of it. Comes before anything else."""
    command, sockets, folders = json.loads(os.environ.pop(_VARIABLE))
    os.setsid()  # A Ctrl-C in the terminal goes to the command alone, which then ends its children.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {LOOK, signal.SIGTERM, signal.SIGCHLD})
    guard = os.getpid()
    server = os.fork()
    if server == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        die_with_parent()
        if os.getppid() != guard:
            os._exit(1)  # It was gone before the kernel knew.
        return
    adopt_orphans()
    _prctl(_PR_SET_PDEATHSIG, LOOK)
    _watch(command, server)
    _end_children(set())
    if os.getppid() != command:
        for folder in folders:
            remove_if_left_behind(Path(folder))
        shutil.rmtree(sockets, ignore_errors=True)
    os._exit(0)


def die_with_parent() -> None:
    """Make this process, a child, die with its parent."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make processes below this one its children when they lose their parent."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _watch(command: int, server: int) -> None:
    """End orphans when told to look, until the command or the fork server is gone."""
    awaited = {LOOK, signal.SIGTERM, signal.SIGCHLD}
    while os.getppid() == command and signal.sigwait(awaited) != signal.SIGTERM:
        _bury()
        if server not in _children():
            return
        # Children of the fork server keep orphans of their own as long as they live.
        _end_children({server})


def _end_children(spared: set[int]) -> None:
    """End all children but some, and what these leave behind, which then are children too."""
    deadline = time.monotonic() + _GRACE_S
    while (left := _children() - spared) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)
        _bury()


def _bury() -> None:
    """Let go of children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _children() -> set[int]:
    me, found = str(os.getpid()), set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            # The name, which may hold anything, stands in parentheses; then state and parent.
            if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == me:
                found.add(int(stat.parent.name))
    return found


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value)


def main() -> None:
    """Become the program."""
    parent, *program = sys.argv[1:]
    die_with_parent()
    if os.getppid() != int(parent):
        sys.exit(1)  # It was gone before the kernel knew.
    os.execvp(program[0], program)


if __name__ == "__main__":
    main()
