"""The peak of a device's memory: how much, when, and what for; and where it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from placement_advisor.units import format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from placement_advisor.machine.devices import Device

# More names than these no reader of a report takes in; the rest is summed by kind.
MAX_CONTRIBUTORS = 5


class Held(StrEnum):
    """What memory is held for. An update's is what an optimizer computes on its way."""

    VARIABLE = "variable"
    OPTIMIZER_SLOT = "optimizer slot"
    CONSTANT = "constant"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    UPDATE = "update"
    RECEIVED_COPY = "received copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor:
    """A buffer that is held at the peak, by the op that made it."""

    name: str
    held: Held
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """The most that one device holds at one moment of the step, and since when.

    ``resident_bytes`` of it are held all the time. ``contributors`` are the largest buffers,
    largest first; ``rest_bytes`` has what they leave, by what it is held for.
    """

    size_bytes: int
    at_ns: int
    resident_bytes: int
    contributors: tuple[Contributor, ...]
    rest_bytes: Mapping[Held, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A device on which a step does not fit; as text, what it holds and for what."""

    device: Device
    peak: PeakMemory
    missing_bytes: int

    def __str__(self) -> str:
        most = ", ".join(
            f"{each.name} ({each.held}, {format_bytes(each.size_bytes)})"
            for each in self.peak.contributors
        )
        return (
            f"on {self.device.name} the step holds "
            f"{format_bytes(self.peak.size_bytes)} at {format_ns(self.peak.at_ns)}, "
            f"{format_bytes(self.missing_bytes)} more than the "
            f"{format_bytes(self.device.memory_bytes)} there, most of it for {most}"
        )


def shortages(peaks: Mapping[str, PeakMemory], devices: Iterable[Device]) -> tuple[Shortage, ...]:
    """Return the devices on which the peak exceeds the memory; where that is unknown, it fits."""
    return tuple(
        Shortage(device=device, peak=peak, missing_bytes=peak.size_bytes - device.memory_bytes)
        for device in devices
        if device.memory_bytes is not None
        and (peak := peaks[device.name]).size_bytes > device.memory_bytes
    )
