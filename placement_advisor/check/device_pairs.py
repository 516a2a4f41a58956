"""Which device of an older record of a step is which of today's, by what both records have there.

Each part of a layer is a vote for its device then being its device now, and so is each tensor that
crosses, for where it comes from. Devices that share a name are the same one. Only where hardware
gives devices other names do votes tell, and one device never becomes two.

Left out: how many ops a vote stands for, which the lock file does not have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from placement_advisor.check.layer_pairs import layer_pairs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from placement_advisor.check.record import LayerRecord, Record

Pair = tuple[str, str]


def renamed_devices(before: Record, after: Record, devices: Collection[str]) -> dict[str, str]:
    """Return the name of today for each device and host that had another one.

    ``devices`` are those of today, without hosts. Where the older record has none of them, it is of
    other hardware, of which a device may be called as a host is today.
    """
    then, now = set(before.memory_bytes), set(after.memory_bytes)
    same = then & now if then.intersection(devices) else set()
    votes = device_votes(before, after)
    voted = (pair for pair in product(then - same, now - same) if votes[pair])
    return {old: new for old, new in one_to_one(voted, votes).items() if old != new}


def device_votes(before: Record, after: Record) -> Counter[Pair]:
    """Return how much says so of each pair of an older device and a newer one that it is one."""
    votes: Counter[Pair] = Counter()
    for old, new in layer_pairs(before.layers, after.layers):
        ours, theirs = before.layers[old].devices, after.layers[new].devices
        for part in ours.keys() & theirs.keys():
            votes[ours[part][0], theirs[part][0]] += 1
    source_of = {cut.tensor: cut.source for cut in before.cuts}
    for tensor, source in {cut.tensor: cut.source for cut in after.cuts}.items():
        if tensor in source_of:
            votes[source_of[tensor], source] += 1
    return votes


def one_to_one(pairs: Iterable[Pair], votes: Mapping[Pair, int]) -> dict[str, str]:
    """Return the newer device of each older one, of the pairs that there may be.

    Those with most votes come first; of equal ones a device that keeps its name, then by name.
    """
    found: dict[str, str] = {}
    for old, new in sorted(pairs, key=lambda pair: (-votes[pair], pair[0] != pair[1], pair)):
        if old not in found and new not in found.values():
            found[old] = new
    return found


def with_devices(record: Record, called: Mapping[str, str]) -> Record:
    """Return the record with other names of devices, where they have another one."""

    def name(device: str) -> str:
        return called.get(device, device)

    def moved(layer: LayerRecord) -> LayerRecord:
        there: dict[str, Any] = {p: tuple(map(name, found)) for p, found in layer.devices.items()}
        return replace(layer, **there)

    return replace(
        record,
        layers={key: moved(layer) for key, layer in record.layers.items()},
        cuts=tuple(
            replace(cut, source=name(cut.source), target=name(cut.target)) for cut in record.cuts
        ),
        memory_bytes={name(device): held for device, held in record.memory_bytes.items()},
    )
