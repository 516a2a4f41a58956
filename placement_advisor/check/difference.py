"""What differs between two records of a step, name by name, with names that changed found again.

Identical layers that trade places are no difference here (what crosses for it is). Devices that are
alike may trade places as a whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from placement_advisor.check.device_pairs import device_votes, one_to_one, with_devices
from placement_advisor.check.layer_pairs import layer_pairs
from placement_advisor.check.record import Part

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.check.record import Cut, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A part of a layer of which most ops run elsewhere; what strays costs copies, or nothing."""

    layer: str
    part: Part
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A layer whose ops take longer, or less long: in µs of a step."""

    layer: str
    before_us: int
    after_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs. ``before`` is the older record with its devices named as in the newer one.

    ``renamed`` has the new name of layers by their old one. Cuts that only changed the name of
    their tensor are in neither list. ``growths`` begin with the largest.
    """

    before: Record
    after: Record
    renamed: Mapping[str, str]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    moves: tuple[Move, ...]
    growths: tuple[Growth, ...]
    cuts_added: tuple[Cut, ...]
    cuts_removed: tuple[Cut, ...]
    on_host_added: tuple[tuple[str, str], ...]


def difference(before: Record, after: Record, alike: Iterable[Sequence[str]]) -> Difference:
    """Compare two records; ``alike`` are groups of devices that may trade places."""
    before = with_devices(before, _traded(before, after, alike))
    pairs = layer_pairs(before.layers, after.layers)
    # Layers made alike are paired by their devices; one whose name has stayed has no other name.
    renamed = {
        old: new
        for old, new in pairs
        if old != new and (old not in after.layers or _make(after, old) != _make(before, old))
    }
    matched_before, matched_after = {old for old, _ in pairs}, {new for _, new in pairs}
    growths = [
        Growth(
            layer=new,
            before_us=before.layers[old].busy_us if old is not None else 0,
            after_us=after.layers[new].busy_us,
        )
        for old, new in [*pairs, *((None, new) for new in after.layers if new not in matched_after)]
    ]
    return Difference(
        before=before,
        after=after,
        renamed=renamed,
        gone=tuple(name for name in before.layers if name not in matched_before),
        new=tuple(name for name in after.layers if name not in matched_after),
        moves=tuple(_moves(before, after, pairs)),
        growths=tuple(
            sorted(
                (growth for growth in growths if growth.after_us != growth.before_us),
                key=lambda growth: (growth.before_us - growth.after_us, growth.layer),
            )
        ),
        cuts_added=_without(after.cuts, before.cuts),
        cuts_removed=_without(before.cuts, after.cuts),
        on_host_added=_on_host_added(before, after, dict(pairs)),
    )


def _make(record: Record, layer: str) -> str:
    return record.layers[layer].fingerprint


def _traded(before: Record, after: Record, alike: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return the new device for each old one that traded places with another."""
    votes = device_votes(before, after)
    traded: dict[str, str] = {}
    for group in alike:
        traded |= one_to_one(product(group, group), votes)
    return traded


def _moves(before: Record, after: Record, pairs: Iterable[tuple[str, str]]) -> Iterator[Move]:
    for old, new in pairs:
        ours, theirs = before.layers[old].devices, after.layers[new].devices
        for part in Part:
            if part in ours and part in theirs and ours[part][0] != theirs[part][0]:
                yield Move(layer=new, part=part, before=ours[part], after=theirs[part])


def _without(cuts: Iterable[Cut], others: Iterable[Cut]) -> tuple[Cut, ...]:
    """Return the cuts that are not among the others: by name, else by where they go and size."""
    theirs = Counter(others)
    left = []
    for cut in cuts:
        if theirs[cut]:
            theirs[cut] -= 1
        else:
            left.append(cut)
    unnamed = Counter({_nameless(cut): 0 for cut in left})
    for cut, count in theirs.items():
        unnamed[_nameless(cut)] += count
    added = []
    for cut in left:
        if unnamed[_nameless(cut)]:
            unnamed[_nameless(cut)] -= 1
        else:
            added.append(cut)
    return tuple(added)


def _nameless(cut: Cut) -> Hashable:
    return cut.source, cut.target, cut.size_bytes


def _on_host_added(
    before: Record, after: Record, same: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return layers and kinds of ops that were not on the host before, whatever their names."""
    known = {
        (same.get(layer, layer), kind) for layer, kinds in before.on_host.items() for kind in kinds
    }
    counts = Counter(kind for _, kind in known)
    found = {(layer, kind) for layer, kinds in after.on_host.items() for kind in kinds}
    more = Counter(kind for _, kind in found) - counts
    return tuple(sorted(pair for pair in found - known if more[pair[1]]))
