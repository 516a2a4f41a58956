"""A placement: which device each op runs on.

A placement file holds names, and numbers that names do not change (`structure.numbering`): a model
that is built a second time in a process has other names, and the same placement fits it.

Constants stand on every device that reads them, so they are not placed. An op that holds, reads
or updates a variable or table runs where that variable is: TensorFlow moves it there silently
otherwise, so a placement that says anything else is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Le
from pydantic import Field

from placement_advisor.errors import PlacementError
from placement_advisor.files.contract import STRICT, ByName, Rows, Text, Version, like, plain, read
from placement_advisor.files.untrusted import MisfitError, shown
from placement_advisor.graph.fingerprint import layer_fingerprints
from placement_advisor.graph.identities import Fingerprint, Identities, identities
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.op import Op
from placement_advisor.graph.op_graph import OpGraph, TracedAs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
NO_LAYER = ""
# More layers than these no reader of an error takes in.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Device of every op that is not a constant, with the family and the reason of the choice."""

    label: str
    family: str
    device_of: Mapping[str, str]
    rationale: str

    @classmethod
    def of(cls, family: str, device_of: Mapping[str, str], rationale: str) -> Placement:
        """Return the one placement of a family, which is labelled as that is."""
        return cls(label=family, family=family, device_of=device_of, rationale=rationale)

    def check(self, graph: OpGraph, devices: tuple[str, ...]) -> None:
        """Check that the placement fits.

        Raises:
            PlacementError: an op without a device, on an unknown device, or apart from its
                variable.
        """
        variable_device: dict[str, str] = {}
        for op in graph.placed_ops:
            device = self.device_of.get(op.name)
            if device is None:
                raise PlacementError(f"{self.label}: op {op.name!r} has no device")
            if device not in devices:
                known = ", ".join(devices)
                raise PlacementError(
                    f"{self.label}: op {op.name!r} is placed on {device!r}; there are {known}"
                )
            if op.variable is None:
                continue
            home = variable_device.setdefault(op.variable, device)
            if home != device:
                raise PlacementError(
                    f"{self.label}: op {op.name!r} is placed on {device!r}, "
                    f"its variable {op.variable!r} on {home!r}"
                )

    def by_layer(self, graph: OpGraph) -> dict[str, str]:
        """Return the device that holds most ops of each layer (ties: first in device name)."""
        votes: dict[str, Counter[str]] = {}
        for op in graph.placed_ops:
            votes.setdefault(op.layer or NO_LAYER, Counter())[self.device_of[op.name]] += 1
        return {layer: most_voted(count) for layer, count in votes.items()}

    def torn_layers(self, graph: OpGraph) -> int:
        """Return how many layers have ops on several devices."""
        devices: dict[str, set[str]] = {}
        for op in graph.placed_ops:
            if op.layer:
                devices.setdefault(op.layer, set()).add(self.device_of[op.name])
        return sum(len(each) > 1 for each in devices.values())

    def as_json(
        self, graph: OpGraph, devices: tuple[str, ...], traced_as: TracedAs | None = None
    ) -> dict[str, Any]:
        """Return the content of a placement file: layers, and the ops that differ from theirs."""
        by_layer = self.by_layer(graph)
        by_op = {
            op.name: self.device_of[op.name]
            for op in graph.placed_ops
            if self.device_of[op.name] != by_layer[op.layer or NO_LAYER]
        }
        written = like(
            PlacementFile,
            self,
            schema_version=SCHEMA_VERSION,
            graph_fingerprint=graph.fingerprint,
            devices=devices,
            by_layer=by_layer,
            by_op=by_op,
            structure=identities(graph, by_layer, by_op),
            traced_as=traced_as,
        )
        return plain(written)

    def save(
        self,
        path: Path,
        graph: OpGraph,
        devices: tuple[str, ...],
        traced_as: TracedAs | None = None,
    ) -> None:
        """Write a placement file, with how the graph was traced if that is known."""
        document = self.as_json(graph, devices, traced_as)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    def renamed(self, device: Mapping[str, str]) -> Placement:
        """Return the placement with other names for its devices."""
        device_of = {op: device[name] for op, name in self.device_of.items()}
        return replace(self, device_of=device_of)

    @classmethod
    def load(cls, path: Path, graph: OpGraph, traced_as: TracedAs | None = None) -> Placement:
        """Read a placement file for this graph; see `read_placement`."""
        return read_placement(path, graph, traced_as)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFile:
    """Which device each op of one graph runs on.

    Constants have no device: they are copied to their readers.
    """

    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[Version, Le(SCHEMA_VERSION)]
    label: Text
    family: Text
    """Rule that made it."""
    rationale: Text
    graph_fingerprint: Fingerprint
    devices: Annotated[Rows[Text], Field(min_length=1, json_schema_extra={"uniqueItems": True})]
    """Hosts with ops last."""
    by_layer: ByName[Text]
    """Key "": ops of no layer."""
    by_op: ByName[Text]
    """Where not its layer's."""
    structure: Identities | None = None
    """Identities of these names."""
    traced_as: TracedAs | None = None
    """For messages; absent if untraced."""

    def __post_init__(self) -> None:
        if len(set(self.devices)) < len(self.devices):
            raise ValueError(f"devices: {shown([*self.devices])} names one twice")
        for where, devices in (("by_layer", self.by_layer), ("by_op", self.by_op)):
            for name, device in devices.items():
                if device not in self.devices:
                    raise ValueError(
                        f"{where}.{shown(name)}: {shown(device)} is not one of the devices"
                    )

    def named_as_in(self, graph: OpGraph, path: Path) -> PlacementFile | None:
        """Return the file at a path with the graph's names, None if that is another graph.

        Raises:
            PlacementError: names are others, and it is not said which op or layer one of them is.
        """
        if self.graph_fingerprint == graph.fingerprint:
            return self
        names = None if self.structure is None else self.structure.names_in(graph)
        if names is None:
            return None
        renamed: dict[str, Any] = {}
        for where, known in zip(("by_layer", "by_op"), names, strict=True):
            devices = getattr(self, where)
            unknown = next((name for name in devices if name not in known), None)
            if unknown is not None:
                raise PlacementError(
                    f"{path}: {where}: layers and ops have other names here, and `structure` does "
                    f"not say which one {shown(unknown)} is",
                    hint="analyse the model again to write a placement with its present names",
                )
            renamed[where] = {known[name]: device for name, device in devices.items()}
        return replace(self, **renamed)

    def device_of(self, op: Op) -> str | None:
        """Return the device of an op, None if there is none."""
        return self.by_op.get(op.name, self.by_layer.get(op.layer or NO_LAYER))

    def names_in(
        self, path: Path, there: Sequence[str], others: Collection[str] = ()
    ) -> dict[str, str]:
        """Return a cluster's names for the devices of the file at a path; none if it knows them.

        ``there`` are the names of its devices, ``others`` further ones that it knows.

        Raises:
            PlacementError: the cluster has too few.
        """
        if set(self.devices) <= {*there, *others}:
            return {}
        if len(self.devices) > len(there):
            raise PlacementError(
                f"{path}: written for {len(self.devices)} devices, there are {len(there)}: "
                f"{', '.join(there)}",
                hint="name hardware that has as many",
            )
        return dict(zip(self.devices, there, strict=False))


def read_placement(
    path: Path, graph: OpGraph, traced_as: TracedAs | None = None
) -> tuple[Placement, PlacementFile]:
    """Return a placement and the file that it stands in, whose content is not trusted.

    ``traced_as`` is how this graph was traced, if that is known.

    Whether variables and their ops are together, and the devices exist is for `Placement.check` to
    say.

    Raises:
        PlacementError: the file cannot be read, is no placement file, was written for another
            graph, names a device that it does not list, or leaves a layer without one.
    """
    written = read_placement_file(path)
    file = written.named_as_in(graph, path)
    if file is None:
        raise PlacementError(
            f"{path}: written for another graph than this one: "
            f"{'; '.join(_what_differs(written, graph, traced_as))}",
            hint="trace the step as it was then, or analyse it again as it is now",
        )
    unknown = next((name for name in file.by_op if name not in graph), None)
    if unknown is not None:
        raise PlacementError(f"{path}: by_op: the graph has no op {shown(unknown)}")
    device_of: dict[str, str] = {}
    for op in graph.placed_ops:
        device = file.device_of(op)
        if device is None:
            raise PlacementError(f"{path}: by_layer: no device for layer {op.layer!r}")
        device_of[op.name] = device
    placement = Placement(
        label=file.label, family=file.family, device_of=device_of, rationale=file.rationale
    )
    return placement, file


def _what_differs(file: PlacementFile, graph: OpGraph, traced_as: TracedAs | None) -> list[str]:
    """Say what makes a graph another one than a file was written for."""
    then = file.traced_as
    is_known = then is not None and traced_as is not None
    found = [] if then is None or traced_as is None else [*then.differences(traced_as)]
    made_of = {layer or NO_LAYER: made for layer, made in layer_fingerprints(graph).items()}
    was = {} if file.structure is None else file.structure.made_of()
    changed = [layer for layer, made in made_of.items() if was.get(layer, made) != made]
    # How a step is traced changes layers as well.
    if changed and not found:
        all_of_them = len(changed) == len(made_of) > 1
        found.append(
            f"all {len(changed)} layers are made of other ops or sizes here"
            + ("" if is_known else ", as by another batch")
            if all_of_them
            else f"{_layers(changed)} made of other ops or sizes here"
        )
    gone = [layer for layer in file.by_layer if layer not in made_of]
    new = [layer for layer in made_of if layer not in file.by_layer]
    found += [f"{_layers(gone)} gone"] * bool(gone) + [f"{_layers(new)} new"] * bool(new)
    return found or ["its ops read other ones here"]


def _layers(names: Sequence[str]) -> str:
    """Return the first of some layers as people call them, and the verb that they take."""
    verb = "is" if len(names) == 1 and names[0] else "are"
    return f"{first_names([name or 'ops of no layer' for name in names], MOST_NAMED)} {verb}"


def read_placement_file(path: Path) -> PlacementFile:
    """Return what a placement file says; the file is not trusted.

    Raises:
        PlacementError: it cannot be read, is no placement file, or names a device that it does not
            list.
    """
    try:
        return read(PlacementFile, path)
    except MisfitError as misfit:
        raise PlacementError(
            f"{path}: {misfit}", hint="`advisor analyze` writes placement files"
        ) from None


def most_voted(votes: Counter[str]) -> str:
    """Return the device with most votes (ties: first in device name)."""
    return min(votes, key=lambda device: (-votes[device], device))
