"""Who holds which memory of a device, and when that was most.

A buffer is free when nobody holds it. Time is a count of changes, so that what was there at the
peak can be told without keeping it at every moment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from placement_advisor.simulator.peak import MAX_CONTRIBUTORS, Contributor, Held, PeakMemory


@dataclass(slots=True, kw_only=True, eq=False)
class Buffer:
    """Memory on one device, free when nobody holds it; ``born`` and ``freed`` count changes."""

    name: str
    held: Held
    size_bytes: int
    holders: int
    born: int
    freed: int | None = None


class DeviceMemory:
    """What one device holds, from change to change, and when that was most."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._changes = 0
        self._held_bytes = self._resident_bytes = 0
        self._peak_bytes = self._peak_ns = self._peak_change = 0

    def take(self, name: str, held: Held, size_bytes: int, now_ns: int) -> Buffer:
        """Return a new buffer with one holder."""
        buffer = Buffer(name=name, held=held, size_bytes=size_bytes, holders=1, born=self._changes)
        self._buffers.append(buffer)
        self._held_bytes += size_bytes
        if self._held_bytes > self._peak_bytes:
            self._peak_bytes = self._held_bytes
            self._peak_ns, self._peak_change = now_ns, self._changes
        self._changes += 1
        return buffer

    def reside(self, name: str, held: Held, size_bytes: int) -> Buffer:
        """Return a new buffer that is never freed, but for variables that get another one."""
        self._resident_bytes += size_bytes
        return self.take(name, held, size_bytes, 0)

    def release(self, buffer: Buffer) -> None:
        """Take away one holder."""
        buffer.holders -= 1
        if not buffer.holders:
            self._held_bytes -= buffer.size_bytes
            buffer.freed = self._changes
            self._changes += 1

    def peak(self) -> PeakMemory:
        """Return the peak so far."""
        moment = self._peak_change
        there = [
            buffer
            for buffer in self._buffers
            if buffer.born <= moment and (buffer.freed is None or buffer.freed > moment)
        ]
        there.sort(key=lambda buffer: -buffer.size_bytes)
        rest: Counter[Held] = Counter()
        for buffer in there[MAX_CONTRIBUTORS:]:
            rest[buffer.held] += buffer.size_bytes
        return PeakMemory(
            size_bytes=self._peak_bytes,
            at_ns=self._peak_ns,
            resident_bytes=self._resident_bytes,
            contributors=tuple(
                Contributor(name=buffer.name, held=buffer.held, size_bytes=buffer.size_bytes)
                for buffer in there[:MAX_CONTRIBUTORS]
                if buffer.size_bytes
            ),
            rest_bytes={held: size for held, size in rest.items() if size},
        )
