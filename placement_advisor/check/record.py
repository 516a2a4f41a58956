"""What a check knows of a placed step: facts that can be read in a diff, without a run.

All of it is simulated. Layers and tensors go by their names; `fingerprint`s tell whether a graph,
or a placed graph, is the same but for names and order.

Left out: control signals, which carry nothing; where constants stand, which are copied; tensors
beyond the largest that cross, of which there are only numbers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen
from pydantic import BeforeValidator, Field

from placement_advisor.files.contract import ByName, Count, Rows, Text, What, like
from placement_advisor.graph.fingerprint import fingerprints, layer_fingerprints
from placement_advisor.graph.op import Role
from placement_advisor.graph.op_work.movement import VARIABLE_READ_KINDS
from placement_advisor.graph.placement import NO_LAYER, placed_ops
from placement_advisor.measurement.measurement import WORTHWHILE_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterable

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement
    from placement_advisor.machine.devices import Cluster, Device
    from placement_advisor.simulator.schedule import PeakMemory, Schedule, Transfer
    from placement_advisor.simulator.sensitivity import PredictedRatio

# A split of every op crosses thousands of times; nobody reads so many lines.
MAX_CUTS = 100
_DIGITS = 3
_NS_PER_US = 1_000


def _listed(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


# In a lock file one device stands as a text, several as a list.
_Devices = Annotated[
    Rows[Text], MinLen(1), What("a device or a list of devices"), BeforeValidator(_listed)
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


class Standing(StrEnum):
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
    standing: Annotated[Standing, Field(alias="verdict")]

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
        layers=_layers(graph, placement, schedule),
        on_host=_on_host(graph, placement, schedule),
        cuts=tuple(cuts[:MAX_CUTS]),
        copies=len(cuts),
        bytes_across=sum(cut.size_bytes or 0 for cut in cuts),
        step_us=_rounded(schedule.step_ns / _NS_PER_US),
        single_step_us=_rounded(single_step_ns / _NS_PER_US),
        memory_bytes={device: _held(peak) for device, peak in sorted(schedule.peak_memory.items())},
        standing=_standing(ratio),
    )


def devices_fingerprint(cluster: Cluster) -> str:
    """Return a hash of all figures of devices and links, whatever devices are called.

    A figure that has its default counts as one that is not there, as in versions that had none.
    """
    return blake2b(repr(_told(_in_order(cluster))).encode(), digest_size=4).hexdigest()


def _in_order(cluster: Cluster) -> Cluster:
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


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_told, value))
    if not is_dataclass(value):
        return value
    figures = {each.name: getattr(value, each.name) for each in fields(value)}
    defaults = {each.name: each.default for each in fields(value)}
    return {name: _told(each) for name, each in figures.items() if each != defaults[name]}


def tensor_name(graph: OpGraph, copy: Transfer) -> str:
    """Return what crosses as people call it: a variable that was read goes by its own name."""
    producer = graph.op(copy.producer)
    if producer.variable is not None and producer.kind in VARIABLE_READ_KINDS:
        return producer.variable
    return copy.tensor


def _standing(ratio: PredictedRatio | None) -> Standing:
    if ratio is None or ratio.low > WORTHWHILE_RATIO:
        return Standing.SINGLE
    return Standing.SPLIT if ratio.high < WORTHWHILE_RATIO else Standing.CANNOT_TELL


def _layers(graph: OpGraph, placement: Placement, schedule: Schedule) -> dict[str, LayerRecord]:
    votes: defaultdict[str, defaultdict[Part, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for op in placed_ops(graph):
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
            busy_us=_rounded(busy_ns[layer] / _NS_PER_US),
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


def _held(peak: PeakMemory) -> dict[str, int]:
    held = Counter({kind.value: size for kind, size in peak.rest_bytes.items()})
    for each in peak.contributors:
        held[each.held.value] += each.size_bytes
    return {kind: _rounded(size) for kind, size in sorted(held.items()) if size}


def _rounded(value: float) -> int:
    return int(float(f"{value:.{_DIGITS}g}"))
