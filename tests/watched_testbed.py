"""A testbed that really runs, and that tests can watch and break."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from placement_advisor.testbed.testbed import Testbed

_LISTEN = "0A"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of the runner: what and which candidate, how often before, and the state then.

    ``cores`` are those on which each worker may run, and the client last.
    """

    function: str
    label: str
    count: int
    predictions: frozenset[str]
    listening_here: int
    listening_there: int
    cores: tuple[frozenset[int], ...]


@dataclass(slots=True)
class Watch:
    """What was seen, and what is done before a call."""

    output: Path
    before: Callable[[Call, Testbed], None] = lambda call, testbed: None
    calls: list[Call] = field(default_factory=list)


class WatchedTestbed(Testbed):
    """Notes every call of the runner."""

    __test__ = False  # The name of its base starts with "Test"; pytest must not collect it.
    watch: ClassVar[Watch]
    _seen: Counter[tuple[str, str]]

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._seen = Counter()

    def call(self, function, *args, **limits):
        name = function.__name__
        label = args[0] if args and isinstance(args[0], str) else ""
        written = self.watch.output.glob(".advisor-*/predictions/*.json")
        here, there = listening(process_ids(self).values())
        call = Call(
            function=name,
            label=label,
            count=self._seen[name, label],
            predictions=frozenset(path.stem for path in written),
            listening_here=here,
            listening_there=there,
            cores=tuple(_cores(child.pid) for child in self._children()),
        )
        self._seen[name, label] += 1
        self.watch.calls.append(call)
        self.watch.before(call, self)
        return super().call(function, *args, **limits)


def process_ids(testbed):
    """Return process ids by name, of what runs now."""
    return {child.name: child.pid for child in testbed._children()}


def kill(testbed, name):
    """Kill one process of a testbed."""
    os.kill(process_ids(testbed)[name], signal.SIGKILL)


def listening(pids):
    """Count the sockets on which processes listen, in this network and in their own."""
    pids = tuple(pids)
    owned = {inode for pid in pids for inode in _socket_inodes(pid)}
    here = owned & _listening_inodes(Path("/proc/self/net"))
    there = {inode for pid in pids for inode in owned & _listening_inodes(Path(f"/proc/{pid}/net"))}
    return len(here), len(there)


def _cores(pid):
    with suppress(ProcessLookupError):
        return frozenset(os.sched_getaffinity(pid))
    return frozenset()


def _socket_inodes(pid):
    found = set()
    # A process, or what it has open, may end meanwhile.
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.add(str(descriptor.readlink()))
    sockets = (name for name in found if name.startswith("socket:["))
    return {name.removeprefix("socket:[").removesuffix("]") for name in sockets}


def _listening_inodes(net):
    lines = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            lines += (net / name).read_text().splitlines()[1:]
    return {each[9] for each in map(str.split, lines) if each[3] == _LISTEN}
