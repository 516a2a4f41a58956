"""The record of a placed step, and what differs between two of them.

A record has facts that a reader sees in a diff, all of them simulated. Layers and tensors go by
name; fingerprints tell whether a graph, or a placed graph, is the same except for names and
order. Left out: control signals, which carry nothing; constants, which are copied; all but the
largest tensors that cross.

Layers are paired first. A layer that kept its name and its content is the same one. Of the
others, either may have changed: a layer of another size is found by its name, a renamed one by
its content. Where these disagree, the order that pairs more layers counts, and names if both pair
as many. A number that Keras has counted says less than the content: one more layer shifts all
that follow.

Devices are paired by name. Only where the hardware names them otherwise do votes decide: each
part of a layer votes for its device then being its device now, and so does the source of each
tensor that crosses. One device never becomes two. Equal devices may trade places as a whole, and
identical layers may trade places; neither is a difference. Left out: the inputs of layers; the
number of ops behind a vote.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from annotated_types import MinLen
from pydantic import BeforeValidator, Field

from placement_advisor.defaults import WORTHWHILE_RATIO
from placement_advisor.files.contract import ByName, Count, Ns, Rows, Text, What, like
from placement_advisor.graph.digraph import strong_components
from placement_advisor.graph.fingerprint import fingerprints, layer_fingerprints
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_work.movement import VARIABLE_READ_KINDS
from placement_advisor.graph.placement import NO_LAYER, Placement
from placement_advisor.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.simulator.schedule import PeakMemory, Schedule, Transfer
    from placement_advisor.simulator.sensitivity import PredictedRatio


# A split of every op crosses thousands of times; nobody reads so many lines.
MAX_CUTS = 100
_DIGITS = 3


def _as_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


# In a lock file one device stands as a text, several as a list.
_Devices = Annotated[
    Rows[Text], MinLen(1), What("a device or a list of devices"), BeforeValidator(_as_list)
]


class Part(StrEnum):
    """Which ops of a layer; variables come with the ops that update them."""

    FORWARD = "forward"
    BACKWARD = "backward"
    VARIABLES = "variables"


PART_OF = {
    Role.FORWARD: Part.FORWARD,
    Role.BACKWARD: Part.BACKWARD,
    Role.VARIABLE: Part.VARIABLES,
    Role.UPDATE: Part.VARIABLES,
}


class PredictedVerdict(StrEnum):
    """How the placement compares with one device alone, as predicted."""

    SPLIT = "split"
    SINGLE = "single"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecord:
    """Where the ops of a layer run, what it is made of, and what its ops take in a step.

    A part of it that there is has the devices of its ops, those that hold most of them first.
    """

    forward: _Devices | None = None
    backward: _Devices | None = None
    variables: _Devices | None = None
    fingerprint: Annotated[Text, Field(alias="made_of")]
    busy_us: Count

    def __post_init__(self) -> None:
        if not self.devices:
            raise ValueError("no device")

    @property
    def devices(self) -> dict[Part, tuple[str, ...]]:
        """Devices of each part that there is."""
        return {part: devices for part in Part if (devices := getattr(self, part)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A tensor that crosses; ``size_bytes`` is None where nobody knows."""

    tensor: Text
    source: Annotated[Text, Field(alias="from")]
    target: Annotated[Text, Field(alias="to")]
    size_bytes: Annotated[Count | None, Field(alias="bytes")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What predicted times depend on beside the model; ``devices`` is a hash of all figures."""

    hardware: Text
    devices: Text
    tensorflow: Text
    advisor: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Versions):
    """A step under a placement. Times and memory are rounded to three digits, bytes across exact.

    ``placement`` is what is configured: a family, or a file. ``placed`` is the fingerprint of the
    graph with its devices. ``on_host`` has the kinds of ops that were placed on a GPU and have no
    kernel there, by layer. ``cuts`` are the largest; ``copies`` and ``bytes_across`` are of all.
    ``memory_bytes`` is the peak of each device, by what it is held for.
    """

    placement: Text
    graph: Text
    placed: Text
    layers: ByName[LayerRecord]
    on_host: ByName[Rows[Text]]
    cuts: Rows[Cut]
    copies: Annotated[Count, Field(alias="copies_per_step")]
    bytes_across: Annotated[Count, Field(alias="bytes_across_per_step")]
    step_us: Count
    single_step_us: Count
    memory_bytes: Annotated[ByName[ByName[Count]], Field(alias="peak_memory_bytes")]
    standing: Annotated[PredictedVerdict, Field(alias="verdict")]

    @property
    def versions(self) -> Versions:
        """What its times depend on beside the model."""
        return like(Versions, self)

    def peak_bytes(self, device: str) -> int:
        """Return the peak of a device."""
        return sum(self.memory_bytes.get(device, {}).values())


def record(
    graph: OpGraph,
    placement: Placement,
    schedule: Schedule,
    single_step_ns: int,
    ratio: PredictedRatio | None,
    *,
    versions: Versions,
    configured: str,
    alike: Iterable[Iterable[str]],
) -> Record:
    """Return the record of a simulated step.

    ``ratio`` is that of its time to the single device's, None where it is the single device;
    ``alike`` are groups of devices that may trade places.
    """
    cuts = _cuts(graph, schedule)
    sort_of = {device: str(number) for number, group in enumerate(alike) for device in group}
    plain, placed = fingerprints(graph, placement.device_of, sort_of)
    return Record(
        **asdict(versions),
        placement=configured,
        graph=plain,
        placed=placed,
        layers=_layer_records(graph, placement, schedule),
        on_host=_on_host(graph, placement, schedule),
        cuts=tuple(cuts[:MAX_CUTS]),
        copies=len(cuts),
        bytes_across=sum(cut.size_bytes or 0 for cut in cuts),
        step_us=_rounded(schedule.step_ns / NS_PER_US),
        single_step_us=_rounded(single_step_ns / NS_PER_US),
        memory_bytes={
            device: _held_bytes(peak) for device, peak in sorted(schedule.peak_memory.items())
        },
        standing=_predicted_verdict(ratio),
    )


def devices_fingerprint(cluster: Cluster) -> str:
    """Return a hash of all figures of devices and links, whatever devices are called.

    A figure that has its default counts as one that is not there, as in versions that had none.
    """
    return blake2b(
        repr(_figures(_with_numbered_names(cluster))).encode(), digest_size=4
    ).hexdigest()


def _with_numbered_names(cluster: Cluster) -> Cluster:
    """Return the cluster with the names that devices and hosts have in machines by name."""
    names = {device.name: f"GPU:{i}" for i, device in enumerate(cluster.devices)}
    names |= {host.name: f"CPU:{i}" for i, host in enumerate(cluster.hosts)}

    def called(place: Device) -> Device:
        return replace(place, name=names[place.name], host=place.host and names[place.host])

    return replace(
        cluster,
        devices=tuple(map(called, cluster.devices)),
        hosts=tuple(map(called, cluster.hosts)),
        links=tuple(
            replace(link, source=names[link.source], target=names[link.target])
            for link in cluster.links
        ),
    )


def _figures(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_figures, value))
    if not is_dataclass(value):
        return value
    figures = {each.name: getattr(value, each.name) for each in fields(value)}
    defaults = {each.name: each.default for each in fields(value)}
    return {name: _figures(each) for name, each in figures.items() if each != defaults[name]}


def tensor_name(graph: OpGraph, copy: Transfer) -> str:
    """Return what crosses as people call it: a variable that was read goes by its own name."""
    producer = graph.op(copy.producer)
    if producer.variable is not None and producer.kind in VARIABLE_READ_KINDS:
        return producer.variable
    return copy.tensor


def _predicted_verdict(ratio: PredictedRatio | None) -> PredictedVerdict:
    if ratio is None or ratio.low > WORTHWHILE_RATIO:
        return PredictedVerdict.SINGLE
    return PredictedVerdict.SPLIT if ratio.high < WORTHWHILE_RATIO else PredictedVerdict.CANNOT_TELL


def _layer_records(
    graph: OpGraph, placement: Placement, schedule: Schedule
) -> dict[str, LayerRecord]:
    votes: defaultdict[str, defaultdict[Part, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for op in graph.placed_ops:
        if op.role in PART_OF:
            device = placement.device_of[op.name]
            votes[op.layer or NO_LAYER][PART_OF[op.role]][device] += 1
    busy_ns: Counter[str] = Counter()
    for run in schedule.runs:
        busy_ns[graph.op(run.op).layer or NO_LAYER] += run.end_ns - run.start_ns
    made_of = layer_fingerprints(graph)
    return {
        layer: LayerRecord(
            **{part: _most_first(found) for part, found in votes[layer].items()},
            fingerprint=made_of[layer or None],
            busy_us=_rounded(busy_ns[layer] / NS_PER_US),
        )
        for layer in sorted(votes)
    }


def _most_first(count: Counter[str]) -> tuple[str, ...]:
    return tuple(sorted(count, key=lambda device: (-count[device], device)))


def _on_host(
    graph: OpGraph, placement: Placement, schedule: Schedule
) -> dict[str, tuple[str, ...]]:
    kinds: defaultdict[str, set[str]] = defaultdict(set)
    for run in schedule.runs:
        op = graph.op(run.op)
        if op.role in PART_OF and run.device != placement.device_of[run.op]:
            kinds[op.layer or NO_LAYER].add(op.kind)
    return {layer: tuple(sorted(found)) for layer, found in sorted(kinds.items())}


def _cuts(graph: OpGraph, schedule: Schedule) -> list[Cut]:
    """Return the tensors that cross, the largest first."""
    cuts = [
        Cut(
            tensor=tensor_name(graph, copy),
            source=copy.source,
            target=copy.target,
            size_bytes=copy.size_bytes,
        )
        for copy in schedule.transfers
        if not copy.is_control
    ]
    return sorted(cuts, key=lambda c: (-(c.size_bytes or 0), c.tensor, c.source, c.target))


def _held_bytes(peak: PeakMemory) -> dict[str, int]:
    held = Counter({kind.value: size for kind, size in peak.rest_bytes.items()})
    for each in peak.contributors:
        held[each.held.value] += each.size_bytes
    return {kind: _rounded(size) for kind, size in sorted(held.items()) if size}


def _rounded(value: float) -> int:
    return int(float(f"{value:.{_DIGITS}g}"))


T = TypeVar("T")

_KERAS_NUMBER = re.compile(r"_\d+$")


def same_layers(older: Mapping[str, str | None], newer: Mapping[str, str | None]) -> dict[str, str]:
    """Return the newer name of older layers.

    Names lead to a hash of what a layer is made of, None if nobody knows.
    """
    found = {name: name for name in older if name in newer and older[name] == newer[name]}
    left = {name: made_of for name, made_of in older.items() if name not in found}
    right = {name: made_of for name, made_of in newer.items() if name not in found}
    # Keras gives the first of a kind no number.
    counted = {name for name in older.keys() & newer.keys() if not _KERAS_NUMBER.search(name)}
    for ours, theirs in _connected_layers(left, right):
        ways = [_by_name, _by_content]
        if {_KERAS_NUMBER.sub("", name) for name in (*ours, *theirs)} <= counted:
            ways.reverse()
        first, second = (_match_layers(ours, theirs, each) for each in (ways, ways[::-1]))
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
        same |= _match_layers(
            {old: (old, _layer_devices(before[old])) for old in group},
            {same[old]: (old, _layer_devices(after[same[old]])) for old in group},
            (
                lambda _, partner_and_devices: partner_and_devices,
                lambda _, partner_and_devices: partner_and_devices[1],
                lambda _, partner_and_devices: partner_and_devices[0],
                lambda *_: True,
            ),
        )
    taken = set(same.values())
    unnumbered = {
        _KERAS_NUMBER.sub("", name): name for name in reversed([*after]) if name not in taken
    }
    same |= {name: unnumbered[name] for name in before if name not in same and name in unnumbered}
    return [(name, same[name]) for name in before if name in same]


def _by_name(name: str, _: str | None) -> Hashable:
    return name


def _by_content(_: str, made_of: str | None) -> Hashable:
    return made_of


def _layer_devices(layer: LayerRecord) -> Hashable:
    return tuple(sorted(layer.devices.items()))


def _match_layers(
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


def _connected_layers(
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


DeviceNames = tuple[str, str]


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


def device_votes(before: Record, after: Record) -> Counter[DeviceNames]:
    """Return how much says so of each pair of an older device and a newer one that it is one."""
    votes: Counter[DeviceNames] = Counter()
    for old, new in layer_pairs(before.layers, after.layers):
        ours, theirs = before.layers[old].devices, after.layers[new].devices
        for part in ours.keys() & theirs.keys():
            votes[ours[part][0], theirs[part][0]] += 1
    source_of = {cut.tensor: cut.source for cut in before.cuts}
    for tensor, source in {cut.tensor: cut.source for cut in after.cuts}.items():
        if tensor in source_of:
            votes[source_of[tensor], source] += 1
    return votes


def one_to_one(pairs: Iterable[DeviceNames], votes: Mapping[DeviceNames, int]) -> dict[str, str]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A part of a layer that runs elsewhere."""

    layer: Text
    """Empty for ops of none."""
    part: Part
    before: Rows[Text]
    """Most ops first."""
    after: Rows[Text]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A layer whose work takes longer."""

    layer: Text
    """Empty for ops of none."""
    before_ns: Ns
    after_ns: Ns


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
    before = with_devices(before, _traded_devices(before, after, alike))
    pairs = layer_pairs(before.layers, after.layers)
    # Layers made alike are paired by their devices; one whose name has stayed has no other name.
    renamed = {
        old: new
        for old, new in pairs
        if old != new
        and (
            old not in after.layers
            or _layer_fingerprint(after, old) != _layer_fingerprint(before, old)
        )
    }
    matched_before, matched_after = {old for old, _ in pairs}, {new for _, new in pairs}
    growths = [
        Growth(
            layer=new,
            before_ns=before.layers[old].busy_us * NS_PER_US if old is not None else 0,
            after_ns=after.layers[new].busy_us * NS_PER_US,
        )
        for old, new in [*pairs, *((None, new) for new in after.layers if new not in matched_after)]
    ]
    return Difference(
        before=before,
        after=after,
        renamed=dict(sorted(renamed.items())),
        gone=tuple(name for name in before.layers if name not in matched_before),
        new=tuple(name for name in after.layers if name not in matched_after),
        moves=tuple(_moves_between(before, after, pairs)),
        growths=tuple(
            sorted(
                (growth for growth in growths if growth.after_ns != growth.before_ns),
                key=lambda growth: (growth.before_ns - growth.after_ns, growth.layer),
            )
        ),
        cuts_added=_cuts_without(after.cuts, before.cuts),
        cuts_removed=_cuts_without(before.cuts, after.cuts),
        on_host_added=_on_host_added(before, after, dict(pairs)),
    )


def _layer_fingerprint(record: Record, layer: str) -> str:
    return record.layers[layer].fingerprint


def _traded_devices(
    before: Record, after: Record, alike: Iterable[Sequence[str]]
) -> dict[str, str]:
    """Return the new device for each old one that traded places with another."""
    votes = device_votes(before, after)
    traded: dict[str, str] = {}
    for group in alike:
        traded |= one_to_one(product(group, group), votes)
    return traded


def _moves_between(
    before: Record, after: Record, pairs: Iterable[tuple[str, str]]
) -> Iterator[Move]:
    for old, new in pairs:
        ours, theirs = before.layers[old].devices, after.layers[new].devices
        for part in Part:
            if part in ours and part in theirs and ours[part][0] != theirs[part][0]:
                yield Move(layer=new, part=part, before=ours[part], after=theirs[part])


def _cuts_without(cuts: Iterable[Cut], others: Iterable[Cut]) -> tuple[Cut, ...]:
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
