"""Which layer of an older step is which of a newer one, by its name and what it is made of.

A layer that has kept both is the same one. Of the others, either may be what an edit changed: a
layer of another size is found by its name, one of another name by what it is made of. Where these
disagree (with its filters doubled, a block is made of what the next one was), that counts which
finds a partner for more layers, and names if both find as many, since people give them. Only a
number that Keras has counted says less than what a layer is made of: one more shifts all after it.

Left out: what layers read. Layers made alike whose names are all gone go by their order.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from placement_advisor.graph.digraph import strong_components

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from placement_advisor.check.record import LayerRecord

T = TypeVar("T")

_NUMBER = re.compile(r"_\d+$")


def same_layers(older: Mapping[str, str | None], newer: Mapping[str, str | None]) -> dict[str, str]:
    """Return the newer name of older layers.

    Names lead to a hash of what a layer is made of, None if nobody knows.
    """
    found = {name: name for name in older if name in newer and older[name] == newer[name]}
    left = {name: made_of for name, made_of in older.items() if name not in found}
    right = {name: made_of for name, made_of in newer.items() if name not in found}
    # Keras gives the first of a kind no number.
    counted = {name for name in older.keys() & newer.keys() if not _NUMBER.search(name)}
    for ours, theirs in _entangled(left, right):
        ways = [_name, _made_of]
        if {_NUMBER.sub("", name) for name in (*ours, *theirs)} <= counted:
            ways.reverse()
        first, second = (_matched(ours, theirs, each) for each in (ways, ways[::-1]))
        found |= second if len(second) > len(first) else first
    return found


def layer_pairs(
    before: Mapping[str, LayerRecord], after: Mapping[str, LayerRecord]
) -> list[tuple[str, str]]:
    """Return the names of layers that are the same, that in the older record first.

    Layers made alike that traded devices are no difference here: each is the one that stayed. A
    layer of another name and make is the same if only the number of its name has changed.
    """
    same = same_layers(
        *({name: layer.fingerprint for name, layer in each.items()} for each in (before, after))
    )
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for old, new in same.items():
        if before[old].fingerprint == after[new].fingerprint:
            alike[after[new].fingerprint].append(old)
    for group in alike.values():
        same |= _matched(
            {old: (old, _devices(before[old])) for old in group},
            {same[old]: (old, _devices(after[same[old]])) for old in group},
            (
                lambda _, partner_and_devices: partner_and_devices,
                lambda _, partner_and_devices: partner_and_devices[1],
                lambda _, partner_and_devices: partner_and_devices[0],
                lambda *_: True,
            ),
        )
    taken = set(same.values())
    unnumbered = {_NUMBER.sub("", name): name for name in reversed([*after]) if name not in taken}
    same |= {name: unnumbered[name] for name in before if name not in same and name in unnumbered}
    return [(name, same[name]) for name in before if name in same]


def _name(name: str, _: str | None) -> Hashable:
    return name


def _made_of(_: str, made_of: str | None) -> Hashable:
    return made_of


def _devices(layer: LayerRecord) -> Hashable:
    return tuple(sorted(layer.devices.items()))


def _matched(
    left: Mapping[str, T], right: Mapping[str, T], ways: Iterable[Callable[[str, T], Hashable]]
) -> dict[str, str]:
    """Return the names on the right by those on the left: alike in the first way, else the next."""
    found: dict[str, str] = {}
    free = dict(right)
    for alike in ways:
        there: defaultdict[Hashable, list[str]] = defaultdict(list)
        for name, what in free.items():
            there[alike(name, what)].append(name)
        for name, what in left.items():
            key = alike(name, what)
            if name not in found and key is not None and there[key]:
                found[name] = there[key].pop(0)
                del free[found[name]]
    return found


def _entangled(
    left: Mapping[str, str | None], right: Mapping[str, str | None]
) -> Iterator[tuple[dict[str, str | None], dict[str, str | None]]]:
    """Yield the layers that share a name or what they are made of, directly or through others."""
    layers = [*left.items(), *right.items()]
    links: defaultdict[int, list[int]] = defaultdict(list)
    shared: dict[tuple[str, str], int] = {}
    for layer, (name, made_of) in enumerate(layers):
        for key in (("name", name), *([("made of", made_of)] if made_of is not None else [])):
            node = shared.setdefault(key, len(layers) + len(shared))
            links[layer].append(node)
            links[node].append(layer)
    parts = strong_components([links[node] for node in range(len(layers) + len(shared))])
    sides: defaultdict[int, tuple[dict[str, str | None], dict[str, str | None]]] = defaultdict(
        lambda: ({}, {})
    )
    for layer, (name, made_of) in enumerate(layers):
        sides[parts[layer]][layer >= len(left)][name] = made_of
    yield from sides.values()
