"""Clocks of several hosts, aligned such that no copy arrives before it was sent.

Model: each host's clock is ahead of the reference by an offset that hardly changes while a profile
is taken. A copy that was sent at s on the clock of one host and arrived at a on that of another
says that the second is ahead of the first by a - s at most; what pings told of a clock says
the same of it and the reference. These are difference constraints. Shortest paths give
for each host the whole range of offsets that agree with all of them, and no narrower one would
be true. The middle of each range is taken: it errs least at worst, and all middles together agree
with every constraint.

The ways of copies may have any length, and be longer one way than back: the true offset is in the
range all the same, which half its width states. A path whose ways differ by d puts the truth about
d / 2 from the middle, and no measurement can tell that.

Clocks that drift apart by up to `DRIFT_PPM` are allowed for: a copy says a little less the
further from the middle of the profile it was seen, and the ranges hold for all of the profile.

Left out: the drift itself, which would be less than what short profiles tell of it; clocks that
were set during a profile or drift more. Where the constraints contradict each other therefore, all
are loosened by the least that lets them agree, which the result names: no offset is right then.

Source: Attiya, Herzberg & Rajsbaum, Optimal clock synchronization under different delay
assumptions (1996).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from placement_advisor.machine.clock_range import ClockRange, drifted_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The clock that all others are compared with, among the hosts.
_REFERENCE = None
# By how much the second host's clock is ahead of the first one's at most.
_Constraints = dict[tuple[str | None, str | None], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCopy:
    """Something that got from one host to another, each moment as the clock there read it."""

    source: str | None
    target: str | None
    sent_ns: int
    arrived_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClocks:
    """Whose clocks profiles were taken by, and what pings told of these.

    ``host_of`` has the hosts of devices. ``ranges`` has how far the clock of each host was ahead of
    the command's while the profile was taken; devices and hosts that are missing have
    the command's own. ``client`` is the host of the process that asked for the steps, None for the
    command's.
    """

    host_of: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, ClockRange] = field(default_factory=dict)
    client: str | None = None

    def ahead_ns(self, device: str) -> int:
        """Return what the clock of a device is taken to be ahead of the command's."""
        return self._ahead_ns(self.host_of.get(device))

    @property
    def client_ahead_ns(self) -> int:
        """What the clock of the client is taken to be ahead of the command's."""
        return self._ahead_ns(self.client)

    def _ahead_ns(self, host: str | None) -> int:
        found = None if host is None else self.ranges.get(host)
        return 0 if found is None else found.offset_ns


ONE_CLOCK = HostClocks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The clocks of hosts, and how far what was seen contradicts itself.

    ``contradiction_ns`` is 0 if offsets within ``ranges`` explain everything. Else it is the least
    by which every single constraint has to be loosened; the ranges are wider by it.
    """

    ranges: Mapping[str, ClockRange]
    contradiction_ns: int = 0


def align_clocks(ranges: Mapping[str, ClockRange], copies: Iterable[SeenCopy]) -> Alignment:
    """Narrow what pings told of the clocks of hosts by the copies of a profile.

    Ends of copies that have no range are on the reference's clock. The ranges of pings hold at the
    middle of the profile; those that are returned hold for all of it.
    """
    hosts: tuple[str | None, ...] = (_REFERENCE, *ranges)
    ahead_ns = {host: found.offset_ns for host, found in ranges.items()}
    seen = [_on_one_clock(copy, ahead_ns) for copy in copies]
    moments = [moment for copy in seen for moment in (copy.sent_ns, copy.arrived_ns)] or [0]
    middle_ns = (min(moments) + max(moments)) // 2
    reach_ns = drifted_ns(max(moments) - middle_ns)
    # From here on an offset is one from the middle of the range of pings.
    limits: _Constraints = {}
    for host, found in ranges.items():
        limits[_REFERENCE, host] = found.high_ns - found.offset_ns
        limits[host, _REFERENCE] = found.offset_ns - found.low_ns
    for copy in seen:
        if copy.source == copy.target:
            continue
        away_ns = max(abs(copy.sent_ns - middle_ns), abs(copy.arrived_ns - middle_ns))
        limit_ns = copy.arrived_ns - copy.sent_ns + drifted_ns(away_ns)
        pair = copy.source, copy.target
        limits[pair] = min(limit_ns, limits.get(pair, limit_ns))
    loosened_ns = _contradiction_ns(hosts, limits)
    paths = _shortest_paths(hosts, limits, loosened_ns)
    assert paths is not None, "loosened constraints agree"
    return Alignment(
        ranges={
            host: ClockRange(
                low_ns=ahead_ns[host] - paths[host, _REFERENCE],
                high_ns=ahead_ns[host] + paths[_REFERENCE, host],
            ).widened(loosened_ns + reach_ns)
            for host in ranges
        },
        contradiction_ns=loosened_ns,
    )


def _on_one_clock(copy: SeenCopy, ahead_ns: Mapping[str, int]) -> SeenCopy:
    source = copy.source if copy.source in ahead_ns else _REFERENCE
    target = copy.target if copy.target in ahead_ns else _REFERENCE
    return SeenCopy(
        source=source,
        target=target,
        sent_ns=copy.sent_ns - (ahead_ns[source] if source else 0),
        arrived_ns=copy.arrived_ns - (ahead_ns[target] if target else 0),
    )


def _contradiction_ns(hosts: Sequence[str | None], limits: _Constraints) -> int:
    """Return the least by which all limits have to be loosened until they agree."""
    if _shortest_paths(hosts, limits, 0) is not None:
        return 0
    # A cycle of constraints is no worse than its worst one: loosened by that, none is negative.
    too_little_ns, enough_ns = 0, -min(limits.values())
    while enough_ns - too_little_ns > 1:
        middle_ns = (too_little_ns + enough_ns) // 2
        if _shortest_paths(hosts, limits, middle_ns) is None:
            too_little_ns = middle_ns
        else:
            enough_ns = middle_ns
    return enough_ns


def _shortest_paths(
    hosts: Sequence[str | None], limits: _Constraints, loosened_ns: int
) -> _Constraints | None:
    """Return by how much each clock is ahead of each other at most; None for a contradiction.

    Source: Cormen et al., Introduction to Algorithms, difference constraints; Floyd & Warshall.
    """
    paths = {pair: limit_ns + loosened_ns for pair, limit_ns in limits.items()}
    paths |= {(host, host): 0 for host in hosts}
    for via, source, target in product(hosts, repeat=3):
        if (source, via) in paths and (via, target) in paths:
            way_ns = paths[source, via] + paths[via, target]
            paths[source, target] = min(way_ns, paths.get((source, target), way_ns))
    return None if any(paths[host, host] < 0 for host in hosts) else paths
