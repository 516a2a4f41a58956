"""Which layer of an older record of a step is which of a newer one.

Layers are taken for the same if they have the same name and are made of the same ops; else if they
are made of the same ops, under whatever name; else by name. Among layers that are alike, those on
the same devices belong together: identical layers that trade places are no difference here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from placement_advisor.check.record import LayerRecord

_NUMBER = re.compile(r"_\d+$")


def layer_pairs(
    before: Mapping[str, LayerRecord], after: Mapping[str, LayerRecord]
) -> list[tuple[str, str]]:
    """Return the names of layers that are the same, that in the older record first."""
    pairs: list[tuple[str, str]] = []
    left, right = dict(before), dict(after)
    for alike in _WAYS_TO_MATCH:
        there: defaultdict[Hashable, list[str]] = defaultdict(list)
        for name, layer in right.items():
            there[alike(name, layer)].append(name)
        for name, layer in list(left.items()):
            if found := there[alike(name, layer)]:
                pairs.append((name, found.pop(0)))
                del left[name], right[pairs[-1][1]]
    unnumbered = {_NUMBER.sub("", name): name for name in reversed(right)}
    return [*pairs, *((name, unnumbered[name]) for name in left if name in unnumbered)]


def _devices(layer: LayerRecord) -> Hashable:
    return tuple(sorted(layer.devices.items()))


_WAYS_TO_MATCH: tuple[Callable[[str, LayerRecord], Hashable], ...] = (
    lambda name, layer: (name, layer.fingerprint, _devices(layer)),
    lambda _, layer: (layer.fingerprint, _devices(layer)),
    lambda name, layer: (name, layer.fingerprint),
    lambda _, layer: layer.fingerprint,
    lambda name, _: name,
)
