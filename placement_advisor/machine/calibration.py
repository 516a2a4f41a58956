"""What was measured of a testbed, apart from any model, and the file that keeps it.

A calibration holds for one machine, one kind of testbed and one version of TensorFlow: their
fingerprint names its file in the user's cache directory. A file that cannot be read is as good as
none, since measuring again is cheap. Left out: tidying up; files of other versions stay.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import permutations
from statistics import median
from typing import TYPE_CHECKING, Any

from placement_advisor.files.cache_folder import cache_folder
from placement_advisor.files.foreign_json import (
    MisfitError,
    as_list,
    as_object,
    check_version,
    content,
    field,
    integer,
    list_of,
    object_of,
    parse,
    shown,
    text,
)
from placement_advisor.files.limits import MAX_BYTES, MAX_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# Version 2. Change it with whatever makes older figures wrong: how they are measured counts too.
SCHEMA_VERSION = 2
# Sides of the square matrices whose product is the reference. They stay in a core's cache: 0.2 ms
# on the machine this was written on.
REFERENCE_WIDTH = 256
# A multiplication and an addition for each term.
REFERENCE_FLOPS = 2 * REFERENCE_WIDTH**3


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTiming:
    """A copy of one size: its time between idle devices, and the core time at its ends.

    The core times are None where the devices are no processes of their own.
    """

    size_bytes: int
    copy_ns: int
    send_ns: int | None
    receive_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWaysTiming:
    """Many copies of one size between two devices: one way, and as many each way at once.

    ``one_way_ns`` is what one more tensor adds to a step in which all go one way, the mean of
    both directions; ``both_ways_ns`` what one more tensor each way adds where they meet.
    """

    size_bytes: int
    one_way_ns: int
    both_ways_ns: int

    @property
    def ratio(self) -> float | None:
        """1 where the directions do not hinder each other, 2 where they take turns.

        None where a difference of times came out negative, in a noisy minute.
        """
        if self.one_way_ns <= 0 or self.both_ways_ns <= 0:
            return None
        return self.both_ways_ns / self.one_way_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a testbed takes for what is no op; see `placement_advisor.machine.devices.Dispatch`.

    ``remote_ns`` is what it takes to start another device and to hear that it has ended. ``op_ns``
    is the time of an op that computes next to nothing, ``reference_ns`` that of a product of two
    matrices of `REFERENCE_WIDTH` on each device, by which one can tell how fast the machine was.
    ``reference_p90`` says how steady: the 90th percentile of steps made of such products over
    their median. ``both_ways`` has each pair of devices once.
    """

    links: Mapping[tuple[str, str], tuple[CopyTiming, ...]]
    both_ways: Mapping[tuple[str, str], BothWaysTiming]
    step_overhead_ns: int
    partition_overhead_ns: int
    remote_ns: int
    quantum_ns: int
    op_ns: int
    reference_ns: Mapping[str, int]
    reference_p90: Mapping[str, float]

    def at_speed(self, reference_ns: Mapping[str, int]) -> Calibration:
        """Return what would have been measured when reference products took that long.

        Devices of one machine are slow together, so there is one factor: the median of theirs.
        """
        known = [
            now_ns / self.reference_ns[name]
            for name, now_ns in reference_ns.items()
            if self.reference_ns.get(name)
        ]
        factor = median(known) if known else 1.0

        def scaled(time_ns: int | None) -> int | None:
            return None if time_ns is None else round(time_ns * factor)

        return replace(
            self,
            links={
                ends: tuple(
                    replace(
                        copy,
                        copy_ns=round(copy.copy_ns * factor),
                        send_ns=scaled(copy.send_ns),
                        receive_ns=scaled(copy.receive_ns),
                    )
                    for copy in copies
                )
                for ends, copies in self.links.items()
            },
            step_overhead_ns=round(self.step_overhead_ns * factor),
            partition_overhead_ns=round(self.partition_overhead_ns * factor),
            remote_ns=round(self.remote_ns * factor),
            op_ns=round(self.op_ns * factor),
            reference_ns=dict(reference_ns),
        )

    def save(self, fingerprint: str, *, testbed: str) -> Path:
        """Keep the calibration of that kind of testbed for runs to come; return its file.

        Raises:
            OSError: the cache directory cannot be written.
        """
        path = calibration_file(fingerprint)
        path.parent.mkdir(parents=True, exist_ok=True)
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "testbed": testbed,
            "links": [
                {
                    "source": source,
                    "target": target,
                    "copies": [asdict(timing) for timing in copies],
                }
                for (source, target), copies in self.links.items()
            ],
            "both_ways": [
                {"between": list(ends), **asdict(timing)} for ends, timing in self.both_ways.items()
            ],
            **{name: getattr(self, name) for name in _FIGURES},
            "reference_ns": dict(self.reference_ns),
            "reference_p90": dict(self.reference_p90),
        }
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCalibration:
    """A calibration on file, that of which testbed, and when it was written, in ns since 1970."""

    fingerprint: str
    testbed: str
    written_ns: int
    calibration: Calibration


def middle(passes: Sequence[Calibration]) -> Calibration:
    """Return the median of each figure of several calibrations of one testbed."""
    first = passes[0]

    def of(figures: Iterable[int]) -> int:
        return round(median(figures))

    def core(figures: Iterable[int | None]) -> int | None:
        known = [figure for figure in figures if figure is not None]
        return of(known) if known else None

    def copy(timings: Sequence[CopyTiming]) -> CopyTiming:
        return replace(
            timings[0],
            copy_ns=of(each.copy_ns for each in timings),
            send_ns=core(each.send_ns for each in timings),
            receive_ns=core(each.receive_ns for each in timings),
        )

    def both_ways(timings: Sequence[BothWaysTiming]) -> BothWaysTiming:
        return replace(
            timings[0],
            one_way_ns=of(each.one_way_ns for each in timings),
            both_ways_ns=of(each.both_ways_ns for each in timings),
        )

    return Calibration(
        links={
            ends: tuple(map(copy, zip(*(each.links[ends] for each in passes), strict=True)))
            for ends in first.links
        },
        both_ways={
            ends: both_ways([each.both_ways[ends] for each in passes]) for ends in first.both_ways
        },
        **{name: of(getattr(each, name) for each in passes) for name in _FIGURES},
        reference_ns={
            device: of(each.reference_ns[device] for each in passes)
            for device in first.reference_ns
        },
        reference_p90={
            device: median(each.reference_p90[device] for each in passes)
            for device in first.reference_p90
        },
    )


_FIGURES = ("step_overhead_ns", "partition_overhead_ns", "remote_ns", "quantum_ns", "op_ns")


def calibration_file(fingerprint: str) -> Path:
    """Return where the calibration with that fingerprint is kept."""
    return _folder() / f"{fingerprint}.json"


def stored_calibration(fingerprint: str) -> Calibration | None:
    """Return the calibration that was kept under that fingerprint, None if there is none."""
    try:
        return _calibration(_document(calibration_file(fingerprint)))
    except MisfitError:
        return None


def kept_calibrations() -> tuple[KeptCalibration, ...]:
    """Return all calibrations on file, the newest first; files that cannot be read left out."""
    kept = []
    for path in _folder().glob("*.json"):
        with suppress(MisfitError, OSError):
            document = _document(path)
            kept.append(
                KeptCalibration(
                    fingerprint=path.stem,
                    testbed=field(document, "testbed", text),
                    written_ns=path.stat().st_mtime_ns,
                    calibration=_calibration(document),
                )
            )
    return tuple(sorted(kept, key=lambda one: (-one.written_ns, one.fingerprint)))


def _folder() -> Path:
    return cache_folder() / "placement-advisor" / "calibrations"


def _document(path: Path) -> dict[str, object]:
    document = as_object(parse(content(path)))
    check_version(document, SCHEMA_VERSION)
    return document


def _calibration(document: dict[str, object]) -> Calibration:
    links = dict(field(document, "links", partial(list_of, _link)))
    reference_ns = field(document, "reference_ns", partial(object_of, _time))
    reference_p90 = field(document, "reference_p90", partial(object_of, _ratio))
    if set(links) != set(permutations(reference_ns, 2)) or set(reference_p90) != set(reference_ns):
        raise MisfitError("the figures are of different devices")
    return Calibration(
        links=links,
        both_ways=dict(field(document, "both_ways", partial(list_of, _both_ways))),
        reference_ns=reference_ns,
        reference_p90=reference_p90,
        **{name: field(document, name, _time) for name in _FIGURES},
    )


def _link(value: object) -> tuple[tuple[str, str], tuple[CopyTiming, ...]]:
    link = as_object(value)
    ends = field(link, "source", text), field(link, "target", text)
    return ends, field(link, "copies", partial(list_of, _copy))


def _copy(value: object) -> CopyTiming:
    copy = as_object(value)
    return CopyTiming(
        size_bytes=field(copy, "size_bytes", _size),
        copy_ns=field(copy, "copy_ns", _difference),
        send_ns=field(copy, "send_ns", _core_time),
        receive_ns=field(copy, "receive_ns", _core_time),
    )


def _both_ways(value: object) -> tuple[tuple[str, str], BothWaysTiming]:
    pair = as_object(value)
    return field(pair, "between", _between), BothWaysTiming(
        size_bytes=field(pair, "size_bytes", _size),
        one_way_ns=field(pair, "one_way_ns", _difference),
        both_ways_ns=field(pair, "both_ways_ns", _difference),
    )


def _between(value: object) -> tuple[str, str]:
    match as_list(value):
        case [one, other] if one != other:
            return text(one), text(other)
    raise MisfitError(f"{shown(value)} is not a pair of devices")


def _core_time(value: object) -> int | None:
    return None if value is None else _time(value)


def _difference(value: object) -> int:
    """Return a difference of times, in a noisy minute negative; what uses it leaves that out."""
    return integer(value, "a time in ns", low=-MAX_NS, high=MAX_NS)


def _size(value: object) -> int:
    return integer(value, "a number of bytes from 0 to 10^15", high=MAX_BYTES)


def _ratio(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:  # type: ignore[operator]
        raise MisfitError(f"{shown(value)} is not a ratio")
    return float(value)  # type: ignore[arg-type]


def _time(value: object) -> int:
    return integer(value, "a time in ns", high=MAX_NS)
