"""Where in the user's code a part of the step comes from: the lines that tell it from the rest.

An op is led to by a stack of lines: a helper's, its caller's, and so on. The line that tells
ops from others is the outermost one that none of the others has; where there is none, as in a
loop over all layers, the innermost one stands for them. A `with tf.device(...)` around it is
found in the text of the file.

Left out: what no op comes from, such as a constant that holds a size; scopes that were entered in
another way than by `with`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from placement_advisor.check.lock_record import PART_OF, Cut, Part, tensor_name
from placement_advisor.check.problem_codes import Place
from placement_advisor.graph.op import Role
from placement_advisor.graph.placement import NO_LAYER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence, Set

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.simulator.schedule import Schedule, Transfer
    from placement_advisor.tf.answers import SourceLine


Stack = tuple[Place, ...]
# What updates a variable stands in the optimizer's line, wherever the variable is.
_PARTS = {role: part for role, part in PART_OF.items() if role is not Role.UPDATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLines:
    """The lines of a step: of ops, of the parts of layers, and of what a placement makes of them.

    ``stacks`` has the lines that led to the ops of each part, innermost first, ``sharers`` the
    layers that a line leads to. ``of_op`` has the line that tells an op from other layers.
    ``readers`` have the lines that read tensors on the device to which they cross: those of the
    forward pass, then the others. ``on_host`` has the line of a kind of op of a layer that is
    placed on a GPU and runs on the host, ``largest`` that of the largest buffer at a device's peak.
    """

    stacks: Mapping[tuple[str, Part], Collection[Stack]] = field(default_factory=dict)
    sharers: Mapping[Part, Mapping[Place, Set[str]]] = field(default_factory=dict)
    of_op: Mapping[str, Place] = field(default_factory=dict)
    readers: tuple[Mapping[tuple[str, str], Place], ...] = ()
    on_host: Mapping[tuple[str, str], Place] = field(default_factory=dict)
    largest: Mapping[str, Place] = field(default_factory=dict)

    def of_parts(
        self, parts: Iterable[tuple[str, Part]], alike: Collection[str] = ()
    ) -> Place | None:
        """Return the first line that tells parts of layers from others, but for those ``alike``."""
        return self._found(set(parts), alike)[1]

    def of_layer(self, layer: str) -> Place | None:
        """Return the line that tells a layer from others, else the one that made its variables.

        None if all layers run in one line, as in `fit`, and no other tells it from them.
        """
        found = (self._found({(layer, part)}) for part in (Part.FORWARD, Part.VARIABLES))
        others, place = min(found, key=itemgetter(0))
        runs_all = others and place in self.sharers.get(Part.BACKWARD, ())
        return None if runs_all else place

    def _found(
        self, wanted: Set[tuple[str, Part]], alike: Collection[str] = ()
    ) -> tuple[float, Place | None]:
        """Return how many others the best line leads to, and that line."""
        found = []
        for layer, part in wanted:
            own = {*alike, *(other for other, of in wanted if of is part)}
            for stack in self.stacks.get((layer, part), ()):
                place = self.telling(stack, part, own)
                found.append((len(self.sharers[part][place] - own), place))
        fewest = min((others for others, _ in found), default=0)
        places = [place for others, place in found if others == fewest]
        if not places:
            return inf, None
        count = Counter(place.file for place in places)
        file = max(sorted(count), key=lambda name: count[name])
        return fewest, min(place for place in places if place.file == file)

    def telling(self, stack: Stack, part: Part, layers: Set[str]) -> Place:
        """Return the line of a stack that tells these layers from others."""
        sharers = self.sharers[part]
        everyone = {layer for layer, of in self.stacks if of is part}
        own = [place for place in stack if sharers[place] != everyone]
        return min(reversed(own), key=lambda p: len(sharers[p] - layers), default=stack[0])

    def of_cuts(self, cuts: Sequence[Cut]) -> Place | None:
        """Return the first line that reads one of these tensors where it crosses to.

        If any is read by a forward pass, the line of that: a backward pass has one for all layers.
        """
        keys = [(cut.tensor, cut.target) for cut in cuts]
        found = (readers[key] for readers in self.readers for key in keys if key in readers)
        return next(found, None)


def from_stacks(stacks: Mapping[tuple[str, Part], Collection[Stack]]) -> CodeLines:
    """Return the lines of the parts of layers alone."""
    sharers: dict[Part, defaultdict[Place, set[str]]] = {part: defaultdict(set) for part in Part}
    for (layer, part), led in stacks.items():
        for stack in led:
            for place in stack:
                sharers[part][place].add(layer)
    return CodeLines(stacks=stacks, sharers=sharers)


def code_lines(
    graph: OpGraph,
    stack_of: Mapping[str, tuple[SourceLine, ...]],
    created_at: Mapping[str, tuple[SourceLine, ...]],
    root: Path,
) -> CodeLines:
    """Return the lines of a step, with files as they are called in a project at ``root``.

    ``stack_of`` has the lines that led to an op, ``created_at`` those that led to a variable.
    """
    project = root.resolve()

    @cache
    def called(file: str) -> str:
        """Return a file's name within the project; one outside of it by its last part alone."""
        path = Path(file).resolve()
        return path.relative_to(project).as_posix() if path.is_relative_to(project) else path.name

    @cache
    def places(lines: tuple[SourceLine, ...]) -> tuple[Place, ...]:
        return tuple(Place(called(line.file), line.line) for line in lines)

    stacks: defaultdict[tuple[str, Part], dict[Stack, None]] = defaultdict(dict)
    stack_of_op: dict[str, Stack] = {}
    for op in graph.ops:
        stack = places((created_at if op.role is Role.VARIABLE else stack_of).get(op.name, ()))
        if stack:
            stack_of_op[op.name] = stack
            if op.role in _PARTS:
                stacks[op.layer or NO_LAYER, _PARTS[op.role]][stack] = None
    lines = from_stacks(stacks)

    @cache
    def line(stack: Stack, role: Role, layer: str) -> Place:
        return lines.telling(stack, _PARTS[role], {layer}) if role in _PARTS else stack[0]

    roles = ((op.name, op.role, op.layer or NO_LAYER) for op in graph.ops)
    return replace(
        lines,
        of_op={
            name: line(stack_of_op[name], role, layer)
            for name, role, layer in roles
            if name in stack_of_op
        },
    )


def with_placement(
    lines: CodeLines, graph: OpGraph, device_of: Mapping[str, str], schedule: Schedule
) -> CodeLines:
    """Return the lines of a step with those of what a placement makes of it."""
    ran_on = {run.op: run.device for run in schedule.runs}
    return replace(
        lines,
        readers=_readers(graph, schedule.transfers, ran_on, lines.of_op),
        on_host={
            (op.layer or NO_LAYER, op.kind): lines.of_op[op.name]
            for op in reversed(graph.ops)
            if op.name in lines.of_op and device_of.get(op.name) != ran_on.get(op.name)
        },
        largest={
            device: lines.of_op[each.name]
            for device, peak in schedule.peak_memory.items()
            for each in reversed(peak.contributors)
            if each.name in lines.of_op
        },
    )


def _readers(
    graph: OpGraph,
    transfers: Iterable[Transfer],
    ran_on: Mapping[str, str],
    of_op: Mapping[str, Place],
) -> tuple[dict[tuple[str, str], Place], ...]:
    """Return the lines that first read tensors where they cross to, those of forward ops apart."""
    forward: dict[tuple[str, str], Place] = {}
    others: dict[tuple[str, str], Place] = {}
    for copy in transfers:
        for edge in graph.outputs_of(copy.producer):
            is_it = edge.port == copy.port and ran_on.get(edge.consumer) == copy.target
            if is_it and not copy.is_control and edge.consumer in of_op:
                is_forward = graph.op(edge.consumer).role is Role.FORWARD
                key = tensor_name(graph, copy), copy.target
                (forward if is_forward else others).setdefault(key, of_op[edge.consumer])
    return forward, others
