"""What was measured of a testbed, apart from any model, and the file that keeps it.

A calibration holds for one machine, one kind of testbed and one version of TensorFlow: their
fingerprint names its file in the user's cache directory. A file that cannot be read is as good as
none, since measuring again is cheap. Left out: tidying up; files of other versions stay.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, permutations
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

from annotated_types import Ge
from pydantic import BeforeValidator, PlainSerializer, Strict
from pydantic_core import from_json

from placement_advisor.files.cache_folder import cache_folder
from placement_advisor.files.contract import (
    STRICT,
    ByName,
    NotNegative,
    Ns,
    Rows,
    Text,
    json_text,
    like,
    read,
)
from placement_advisor.files.foreign_json import MisfitError
from placement_advisor.machine.copy_timings import AtOnceTiming, BothWaysTiming, CopyTiming

if TYPE_CHECKING:
    from pathlib import Path

# Part of the names of files. Change it with whatever makes older figures wrong or files unreadable:
# how they are measured counts too.
SCHEMA_VERSION = 7
# What takes longer where cores are slower.
_OF_CORES = ("step_overhead_ns", "partition_overhead_ns", "remote_ns", "wake_ns", "op_ns")
_T = TypeVar("_T")
# Names of two devices; as a key of an object, JSON in JSON.
_Pair = Annotated[
    tuple[Text, Text], Strict(False), BeforeValidator(from_json), PlainSerializer(json.dumps)
]
ByPair = Mapping[_Pair, _T]
# Where one reference product in ten takes this much longer than the middle one, the machine had
# other work: good enough for now, as the model will have met the same, but not for later.
# Judgement: a lower limit would have shared machines calibrate before each analysis, a higher one
# would keep what was measured beside other work.
UNSTEADY_P90 = 1.3
# Sides of the square matrices whose product is the reference. They stay in a core's cache: 0.2 ms
# on the machine this was written on.
REFERENCE_WIDTH = 256
# A multiplication and an addition for each term.
REFERENCE_FLOPS = 2 * REFERENCE_WIDTH**3
# Threads with which a worker runs ops. With one the executor follows a chain of ops to its end
# before it sends what is ready: the other device waits for work that it does not need. No
# accelerator does that: its host launches copies while it computes. Four threads leave one free
# unless four chains compute at once.
OP_THREADS = 4
# A worker that has had nothing to do for so long is asleep, one that has rested for less in part.
# Judgement: longer than the ends of copies rest while these are measured, shorter than the layers
# of most models compute.
ASLEEP_NS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What joins the hosts of a testbed that has several; the first of them drives the steps.

    ``devices`` has the names of each host's devices. ``remote_ns`` is what it takes to start a
    device of a host and to hear that it has ended, by hosts but the first. ``at_once`` has copies
    of two pairs of devices from one host to another, where one of these has two devices.
    """

    devices: Mapping[str, tuple[str, ...]]
    remote_ns: Mapping[str, int]
    at_once: Mapping[tuple[str, str], AtOnceTiming]

    def host_of(self) -> dict[str, str]:
        """Return the host of each device."""
        return {device: host for host, devices in self.devices.items() for device in devices}

    def measured(self) -> tuple[tuple[str, str], ...]:
        """Return the links that stand for all others: within each host, then between two."""
        within = [permutations(devices[:2], 2) for devices in self.devices.values()]
        first = [devices[0] for devices in self.devices.values()]
        return (*chain.from_iterable(within), *permutations(first, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTiming:
    """What one device draws from memory, and how many times as long it takes beside another one."""

    bytes_per_s: Annotated[float, Ge(1.0)]
    ratio: Annotated[float, Ge(1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a testbed takes for what is no op; see `placement_advisor.machine.devices.Dispatch`.

    ``remote_ns`` is what it takes to start another device and to hear that it has ended,
    ``wake_ns`` how much longer a copy takes to one that is asleep. ``op_ns`` is the time of an op
    that computes next to nothing, ``reference_ns`` that of a product of two matrices of
    `REFERENCE_WIDTH` on each device, by which one can tell how fast the machine was.
    ``reference_p90`` says how steady: the 90th percentile of steps made of such products over
    their median. ``both_ways`` has each pair of devices once.

    ``memory`` is what devices of one machine share; None where there is one device, and over
    several hosts.

    Over several hosts, ``network`` is what joins them; ``both_ways`` then has one pair of devices
    for each pair of hosts and for each host, and ``remote_ns`` is for devices of the first one.
    """

    links: ByPair[Rows[CopyTiming]]
    both_ways: ByPair[BothWaysTiming]
    step_overhead_ns: Ns
    partition_overhead_ns: Ns
    remote_ns: Ns
    quantum_ns: Ns
    wake_ns: Ns
    op_ns: Ns
    reference_ns: ByName[Ns]
    reference_p90: ByName[NotNegative]
    memory: MemoryTiming | None = None
    network: Network | None = None

    def at_speed(self, reference_ns: Mapping[str, int]) -> Calibration:
        """Return what would have been measured when reference products took that long.

        Devices of one machine are slow together, so there is one factor for each: the median of
        theirs. What a network takes stays: of copies between machines, the cores' part changes.
        """
        factor_of = self._factors(reference_ns)
        own = next(iter(factor_of.values()), 1.0)

        def scaled(ends: tuple[str, str], copy: CopyTiming) -> CopyTiming:
            source, target = (factor_of.get(end, own) for end in ends)
            copy_ns = copy.copy_ns * source
            if self._is_far(ends):
                slower_ns = (source - 1) * (copy.send_ns or 0)
                slower_ns += (target - 1) * (copy.receive_ns or 0)
                copy_ns = copy.copy_ns + slower_ns
            return replace(
                copy,
                copy_ns=round(copy_ns),
                send_ns=None if copy.send_ns is None else round(copy.send_ns * source),
                receive_ns=None if copy.receive_ns is None else round(copy.receive_ns * target),
            )

        return replace(
            self,
            links={
                ends: tuple(scaled(ends, copy) for copy in copies)
                for ends, copies in self.links.items()
            },
            memory=self.memory and replace(self.memory, bytes_per_s=self.memory.bytes_per_s / own),
            reference_ns=dict(reference_ns),
            **{name: round(getattr(self, name) * own) for name in _OF_CORES},
        )

    def _factors(self, reference_ns: Mapping[str, int]) -> dict[str, float]:
        """Return by device how many times as long it takes now, alike for devices of one host."""
        one_machine = {"": tuple(self.reference_ns)}
        factors: dict[str, float] = {}
        for devices in (self.network.devices if self.network else one_machine).values():
            known = [
                reference_ns[name] / self.reference_ns[name]
                for name in devices
                if name in reference_ns and self.reference_ns.get(name)
            ]
            factors |= dict.fromkeys(devices, median(known) if known else 1.0)
        return factors

    def _is_far(self, ends: tuple[str, str]) -> bool:
        """Return whether devices are on different hosts."""
        if self.network is None:
            return False
        host_of = self.network.host_of()
        return host_of[ends[0]] != host_of[ends[1]]

    def save(self, fingerprint: str, *, testbed: str) -> Path:
        """Keep the calibration of that kind of testbed for runs to come; return its file.

        Raises:
            OSError: the cache directory cannot be written.
        """
        return keep(like(_File, self, testbed=testbed), calibration_file(fingerprint))


class KeptCalibration(NamedTuple):
    """A calibration on file, that of which testbed, and when it was written, in ns since 1970."""

    fingerprint: str
    testbed: str
    written_ns: int
    calibration: Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(Calibration):
    __pydantic_config__: ClassVar = STRICT

    testbed: Text

    def __post_init__(self) -> None:
        ends = set(permutations(self.reference_ns, 2))
        are_known = self.links.keys() == ends >= self.both_ways.keys()
        if self.network or not are_known or self.reference_p90.keys() != self.reference_ns.keys():
            raise ValueError("the figures are of different devices")


def keep(document: Any, path: Path) -> Path:
    """Write what was measured into its file of the cache, as a whole or not at all; return it.

    Raises:
        OSError: the cache directory cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json_text(document), encoding="utf-8")
    partial.replace(path)
    return path


def calibration_file(fingerprint: str) -> Path:
    """Return where the calibration with that fingerprint is kept."""
    return calibrations_folder() / f"{fingerprint}.json"


def stored_calibration(fingerprint: str) -> Calibration | None:
    """Return the calibration that was kept under that fingerprint, None if there is none."""
    try:
        return like(Calibration, read(_File, calibration_file(fingerprint)))
    except MisfitError:
        return None


def kept_calibrations() -> tuple[KeptCalibration, ...]:
    """Return all calibrations on file, the newest first; files that cannot be read left out."""
    kept = []
    for path in calibrations_folder().glob("*.json"):
        with suppress(MisfitError, OSError):
            file = read(_File, path)
            written_ns, calibration = path.stat().st_mtime_ns, like(Calibration, file)
            kept.append(KeptCalibration(path.stem, file.testbed, written_ns, calibration))
    return tuple(sorted(kept, key=lambda one: (-one.written_ns, one.fingerprint)))


def calibrations_folder() -> Path:
    """Return the folder in which calibrations are kept."""
    return cache_folder() / "placement-advisor" / "calibrations"
