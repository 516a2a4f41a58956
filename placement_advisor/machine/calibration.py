"""What was measured of a testbed, apart from any model, and the file that keeps it.

Figures compare where fingerprints of their testbeds are equal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain, combinations, permutations
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

from annotated_types import Ge, Le
from pydantic import BeforeValidator, PlainSerializer, Strict
from pydantic_core import from_json

from placement_advisor.files import contract
from placement_advisor.files.output import cache_folder
from placement_advisor.files.untrusted import MAX_NS, MisfitError
from placement_advisor.machine.this_machine import digest, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.machine.testbed_plan import HostShare, TestbedPlan


# Part of the names of files. Change it with whatever makes older figures wrong or files unreadable:
# how they are measured counts too.
SCHEMA_VERSION = 7
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
# What takes longer where cores are slower.
_OF_CORES = ("step_overhead_ns", "partition_overhead_ns", "remote_ns", "wake_ns", "op_ns")
# In a noisy minute it is negative; what uses it leaves that out.
Difference = Annotated[int, Ge(-MAX_NS), Le(MAX_NS)]
_T = TypeVar("_T")
# Names of two devices; as a key of an object, JSON in JSON.
_Pair = Annotated[
    tuple[contract.Text, contract.Text],
    Strict(False),
    BeforeValidator(from_json),
    PlainSerializer(json.dumps),
]
ByPair = Mapping[_Pair, _T]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTiming:
    """A copy of one size: its time between idle devices, and the core time at its ends.

    The core times are None where they were not measured: devices that are no processes of their
    own have none.
    """

    size_bytes: contract.Bytes
    copy_ns: Difference
    send_ns: contract.Ns | None
    receive_ns: contract.Ns | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWaysTiming:
    """Many copies of one size between two devices: one way, and as many each way at once.

    ``one_way_ns`` is what one more tensor adds to a step in which all go one way, the mean of
    both directions; ``both_ways_ns`` what one more tensor each way adds where they meet.
    """

    size_bytes: contract.Bytes
    one_way_ns: Difference
    both_ways_ns: Difference

    @property
    def ratio(self) -> float | None:
        """1 where the directions do not hinder each other, 2 where they take turns.

        None where a difference of times came out negative, in a noisy minute.
        """
        return _ratio(self.both_ways_ns, self.one_way_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOnceTiming:
    """Many copies of one size from one host to another: of one pair of devices, and of two at once.

    ``one_pair_ns`` is what one more tensor adds to a step in which all are of the first pair,
    ``two_pairs_ns`` what one more tensor of each pair adds.
    """

    size_bytes: contract.Bytes
    one_pair_ns: Difference
    two_pairs_ns: Difference

    @property
    def ratio(self) -> float | None:
        """1 where the pairs do not hinder each other, 2 where they share one wire.

        None where a difference of times came out negative, in a noisy minute.
        """
        return _ratio(self.two_pairs_ns, self.one_pair_ns)


def _ratio(together_ns: int, alone_ns: int) -> float | None:
    return together_ns / alone_ns if together_ns > 0 and alone_ns > 0 else None


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
    """What devices of one machine share."""

    bytes_per_s: Annotated[float, Ge(1.0)]
    """What one device alone draws."""
    ratio: Annotated[float, Ge(1.0)]
    """How many times as long it takes beside another device."""


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

    links: ByPair[contract.Rows[CopyTiming]]
    both_ways: ByPair[BothWaysTiming]
    step_overhead_ns: contract.Ns
    partition_overhead_ns: contract.Ns
    remote_ns: contract.Ns
    quantum_ns: contract.Ns
    wake_ns: contract.Ns
    op_ns: contract.Ns
    reference_ns: contract.ByName[contract.Ns]
    reference_p90: contract.ByName[contract.NotNegative]
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
        return keep(contract.like(_File, self, testbed=testbed), calibration_file(fingerprint))


class KeptCalibration(NamedTuple):
    """A calibration on file, that of which testbed, and when it was written, in ns since 1970."""

    fingerprint: str
    testbed: str
    written_ns: int
    calibration: Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(Calibration):
    __pydantic_config__: ClassVar = contract.STRICT

    testbed: contract.Text

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
    partial.write_text(contract.json_text(document), encoding="utf-8")
    partial.replace(path)
    return path


def calibration_file(fingerprint: str) -> Path:
    """Return where the calibration with that fingerprint is kept."""
    return calibrations_folder() / f"{fingerprint}.json"


def stored_calibration(fingerprint: str) -> Calibration | None:
    """Return the calibration that was kept under that fingerprint, None if there is none."""
    try:
        return contract.like(Calibration, contract.read(_File, calibration_file(fingerprint)))
    except MisfitError:
        return None


def kept_calibrations() -> tuple[KeptCalibration, ...]:
    """Return all calibrations on file, the newest first; files that cannot be read left out."""
    kept = []
    for path in calibrations_folder().glob("*.json"):
        with suppress(MisfitError, OSError):
            file = contract.read(_File, path)
            written_ns, calibration = path.stat().st_mtime_ns, contract.like(Calibration, file)
            kept.append(KeptCalibration(path.stem, file.testbed, written_ns, calibration))
    return tuple(sorted(kept, key=lambda one: (-one.written_ns, one.fingerprint)))


def calibrations_folder() -> Path:
    """Return the folder in which calibrations are kept."""
    return cache_folder() / "placement-advisor" / "calibrations"


def testbed_fingerprint(plan: TestbedPlan) -> str:
    """Return a hash of all that figures of this testbed depend on; others do not compare.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    devices = (device.name for device in plan.devices)
    hosts = (host.fingerprint for host in plan.hosts)
    link = () if plan.link is None else (plan.link.value,)
    return fingerprint((plan.kind.value, *devices, version("tensorflow"), *hosts, *link))


def calibration_fingerprint(plan: TestbedPlan) -> str:
    """Return the name under which a calibration is kept: the system's scheduler matters to it.

    Of several hosts none is kept as a whole: it is made of parts, which this names together.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    if plan.hosts:
        routes = (route_fingerprint(plan, *pair) for pair in combinations(plan.hosts, 2))
        return digest((*(host_fingerprint(plan, host) for host in plan.hosts), *routes))
    return fingerprint((testbed_fingerprint(plan), os.uname().release, str(SCHEMA_VERSION)))


def host_fingerprint(plan: TestbedPlan, host: HostShare) -> str:
    """Return the name under which figures of one of several hosts are kept.

    What the first host takes to drive steps depends on this machine too. Names of hosts are no
    part of it: a user may call them whatever he likes.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    of = ("host", *_of(plan), host.fingerprint, host.address, str(len(host.slots)))
    return fingerprint(of) if host == plan.hosts[0] else digest(of)


def route_fingerprint(plan: TestbedPlan, one: HostShare, other: HostShare) -> str:
    """Return the name under which figures of the ways between two of several hosts are kept.

    Raises:
        PackageNotFoundError: there is no TensorFlow.
    """
    ends = [(h.fingerprint, h.address, f"{len(h.slots) > 1} {h.lends_all}") for h in (one, other)]
    drives = str(one == plan.hosts[0])
    return digest(("route", *_of(plan), *ends[0], *ends[1], drives))


def _of(plan: TestbedPlan) -> tuple[str, ...]:
    return str(plan.link), version("tensorflow"), str(SCHEMA_VERSION)
