"""Assigns each op to the call of a layer that it belongs to.

A layer that holds other layers is divided into as many layers as it has parts of its own.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from placement_advisor.graph.op import Role
from placement_advisor.tf.trace.bodies import COMPOSITE_KINDS
from placement_advisor.tf.trace.roles import GRADIENT_SUFFIX, gradient_scope

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from placement_advisor.tf.trace.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Ops of one call of a container that belong together; ``scope`` is the call's name scope."""

    scope: str
    ops: tuple[Node, ...]

    @property
    def short_name(self) -> str:
        """What the part is called within its container: after its first op."""
        return self._below_scope(self.ops[0].name)

    def keys(self, others: Collection[str]) -> set[str]:
        """Return name scopes that hold these ops and no ``others``; an op's name where none does.

        Ops of the gradient are named after them.
        """
        found = set()
        for op in self.ops:
            whole = f"{self.scope}/{self._below_scope(op.name)}".lstrip("/")
            shared = any(other == whole or other.startswith(f"{whole}/") for other in others)
            found.add(op.name if shared else whole)
        return found

    def _below_scope(self, name: str) -> str:
        return name.removeprefix(self.scope).lstrip("/").partition("/")[0]


def parts_of(
    forward: Iterable[Node], own: Mapping[str, str], variables: Mapping[str, str]
) -> list[Part]:
    """Return the parts of all containers, in order, without those that only read inputs.

    ``forward`` stands in topological order. ``own`` maps a container's own ops to the name scope
    of its call, empty for ops outside all scopes; ``variables`` holds ops that take a variable.
    """
    forward = list(forward)
    level = _levels(forward, own)
    groups: dict[int, list[Node]] = {}
    for op in forward:
        if op.name not in own:
            continue
        group = [op]
        for producer, _ in op.inputs:
            together = groups.get(id(producer))
            is_near = (
                own.get(producer.name) == own[op.name] and level[id(producer)] == level[id(op)]
            )
            if together is not None and is_near and together is not group:
                group = _joined(together, group, groups)
        groups[id(op)] = group
    names = {op.name for op in forward}
    distinct = list({id(group): group for group in groups.values()}.values())
    return [
        Part(scope=own[group[0].name], ops=tuple(group))
        for group in distinct
        if _reads_layers(group, names, variables)
    ]


def _levels(forward: Iterable[Node], own: Mapping[str, str]) -> dict[int, int]:
    """Return how often data had left its container and come back, for each own op."""
    within: dict[str, dict[int, int]] = defaultdict(dict)
    scopes = set(own.values())
    levels: dict[int, int] = {}
    for op in forward:
        own_scope = own.get(op.name)
        for scope in _around(op.name, scopes):
            level = within[scope]
            is_own = own_scope == scope
            before = [
                level[id(producer)] + (is_own and own.get(producer.name) != scope)
                for producer, _ in op.inputs
                if id(producer) in level
            ]
            if before or is_own:
                level[id(op)] = max(before, default=0)
            if is_own:
                levels[id(op)] = level[id(op)]
    return levels


def _around(name: str, scopes: Collection[str]) -> list[str]:
    found = [""] if "" in scopes else []
    end = name.find("/")
    while end > 0:
        if name[:end] in scopes:
            found.append(name[:end])
        end = name.find("/", end + 1)
    return found


def _joined(one: list[Node], other: list[Node], groups: dict[int, list[Node]]) -> list[Node]:
    """Put the smaller group into the larger."""
    large, small = (one, other) if len(one) >= len(other) else (other, one)
    large += small
    for op in small:
        groups[id(op)] = large
    return large


def _reads_layers(
    group: Iterable[Node], forward: Collection[str], variables: Mapping[str, str]
) -> bool:
    """Return whether a part reads what a layer computed, or a variable."""
    group = list(group)
    inside = {id(op) for op in group}
    return any(
        op.name in variables or (producer.name in forward and id(producer) not in inside)
        for op in group
        for producer, _ in op.inputs
    )


LAYER_ATTRIBUTE = "_placement_advisor_layer"
# Ends the path of a layer that holds other layers.
CONTAINER_MARK = "/"
_CALL_NUMBER = re.compile(r"_\d+$")
_ANY_GRADIENT_SCOPE = re.compile(r"(?:^|(?<=/))(?:gradient_tape|gradients(?:_\d+)?)/")
_FUNCTION_CALL_PART = re.compile(r"(?:^|(?<=/))(?:Stateful)?PartitionedCall(?:_\d+)?/")
_FUNCTION_CALL = re.compile(rf"^.*{_FUNCTION_CALL_PART.pattern}")
# Stands for more than one layer; no layer has an empty name.
_SEVERAL = ""
_NO_LAYER_KINDS = frozenset({"ReadVariableOp", "NoOp", "Identity"})
# Looking a member up takes a tenth of a microsecond, here up to a million times.
_INPUT, _CONSTANT, _VARIABLE, _FORWARD, _BACKWARD, _UPDATE = Role


def op_layers(
    operations: list[Node],
    readers: dict[str, list[Node]],
    roles: dict[str, Role],
    variables: dict[str, str],
) -> dict[str, str]:
    """Return the layers of ops by name; ``operations`` stand in topological order."""
    forward = [op for op in operations if roles[op.name] is _FORWARD]
    served = _served_names(operations, roles)
    scopes, own = _keras_calls(forward, variables)
    others = [
        op for op in forward if op.name not in own and _longest_prefix(op.name, scopes) is None
    ]
    gradients = None if scopes else {n for names in served.values() for n in names}
    scopes |= _name_scopes(others, variables, readers, gradients)

    @cache
    def layer_at(name: str) -> str | None:
        """Return the layer of the innermost scope that is one; `_longest_prefix`, remembered."""
        return scopes.get(name) or (layer_at(name.rpartition("/")[0]) if name else None)

    layers: dict[str, str] = {}
    for op in operations:
        if roles[op.name] in (_FORWARD, _CONSTANT, _BACKWARD):
            for name in served.get(op.name, (op.name,)):
                layer = layer_at(name)
                if layer is not None:
                    layers[op.name] = layer
                    break
    _reads(forward, readers, layers)
    _state_and_updates(operations, readers, roles, variables, layers)
    _rest_of_backward(operations, readers, roles, layers)
    _rest_of_forward(operations, readers, roles, variables, layers)
    return layers


def _served_names(operations: list[Node], roles: dict[str, Role]) -> dict[str, tuple[str, ...]]:
    """Map gradient ops to names that may begin with that of the forward op that they serve.

    The gradient of a called function is a function with a call of its own; it serves the call
    whose tensors it reads.
    """
    named = {op.name: match for op in operations if (match := gradient_scope(op.name))}
    own = {name: GRADIENT_SUFFIX.sub("", name[match.end() :]) for name, match in named.items()}
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for op in operations:
        around = named[op.name].group(1) or "" if op.name in named else ""
        for p, _ in op.inputs if around else ():
            call = _FUNCTION_CALL.match(p.name)
            within = p.name[call.end() :] if call else None
            if call and roles[p.name] is _FORWARD and own[op.name].startswith(within or "?"):
                votes[around][call.group()] += 1
    served: dict[str, tuple[str, ...]] = {}
    for name, match in named.items():
        around = match.group(1) or ""
        if around in votes:
            around = votes[around].most_common(1)[0][0]
        around = _ANY_GRADIENT_SCOPE.sub("", around)
        served[name] = (around + own[name], own[name]) if around else (own[name],)
    return served


def _keras_calls(
    forward: list[Node], variables: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Map the name scope of each call of a Keras layer to the layer.

    Also returns the ops that layers which hold others compute themselves, with their call's scope.
    """
    calls: Counter[str] = Counter()
    scopes: dict[str, str] = {}
    own: dict[str, str] = {}
    containers: dict[str, str] = {}
    for op in forward:
        tag: str | None = op.attribute(LAYER_ATTRIBUTE)
        if not tag:
            continue
        scope = _call_scope(op.name, tag.removesuffix(CONTAINER_MARK))
        if tag.endswith(CONTAINER_MARK):
            own[op.name] = scope if op.name.startswith(f"{scope}/") else ""
            containers[own[op.name]] = tag.removesuffix(CONTAINER_MARK)
        elif scope not in scopes:
            scopes[scope] = _numbered(tag, calls)
    parts = parts_of(forward, own, variables)
    in_call = Counter(part.scope for part in parts)
    for part in parts:
        container = containers[part.scope]
        is_all = in_call[part.scope] == 1
        label = _numbered(container if is_all else f"{container}/{part.short_name}", calls)
        inside = {op.name for op in part.ops}
        scopes.update(dict.fromkeys(part.keys(own.keys() - inside), label))
    return scopes, own


def _name_scopes(
    forward: list[Node],
    variables: dict[str, str],
    readers: dict[str, list[Node]],
    gradients: Iterable[str] | None,
) -> dict[str, str]:
    """Map name scopes to layers, and the names of ops outside all scopes if gradients are given."""
    with_gradient = {start for name in gradients or () for start in _starts(name)}
    calls: Counter[str] = Counter()
    scopes: dict[str, str] = {}
    with_variables: set[str] = set()
    # What has a gradient. By name alone the gradient of a mean, which divides, is one of any
    # division.
    trained: set[str] = set()
    for op in forward:
        scope = op.name.rpartition("/")[0]
        reads = op.name in variables or any(p.name in variables for p, _ in op.inputs)
        counts = {reader.kind.startswith("Assign") for reader in readers[op.name]} == {True}
        if reads:
            with_variables.add(scope)
        if reads or any(p.name in trained for p, _ in op.inputs):
            trained.add(op.name)
        if op.kind in _NO_LAYER_KINDS or op.kind.startswith("Assign") or scope in scopes:
            continue
        label = _FUNCTION_CALL_PART.sub("", f"{scope}/").rstrip("/")
        if label:
            scopes[scope] = _numbered(label, calls)
        elif gradients is not None and (
            (op.name in with_gradient and op.name in trained)
            or (reads and not counts)
            or op.kind in COMPOSITE_KINDS
        ):
            scopes[op.name] = _numbered(op.name.rpartition("/")[2], calls)
    # A scope without variables inside another is a function of TensorFlow's, not a layer.
    for scope in sorted(scopes, key=len):
        outer = _longest_prefix(scope.rpartition("/")[0], scopes)
        if outer is not None and scope not in with_variables:
            scopes[scope] = outer
    return scopes


def _numbered(label: str, calls: Counter[str]) -> str:
    calls[label] += 1
    return label if calls[label] == 1 else f"{label}@{calls[label]}"


def _call_scope(name: str, tag: str) -> str:
    """Return the part of an op's name that stands for this call of its layer."""
    parts, last = name.split("/"), tag.rpartition("/")[2]
    for i in range(tag.count("/"), len(parts) - 1):
        if parts[i] == last or _CALL_NUMBER.sub("", parts[i]) == last:
            return "/".join(parts[: i + 1])
    return name.rpartition("/")[0] or name


def _starts(name: str) -> Iterator[str]:
    """Yield the name and all scopes that it lies in, longest first."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _longest_prefix(name: str, scopes: dict[str, str]) -> str | None:
    return next((scopes[start] for start in _starts(name) if start in scopes), None)


def _reads(forward: list[Node], readers: dict[str, list[Node]], layers: dict[str, str]) -> None:
    """A variable is read for the layer that uses it, whatever scope the read is named in."""
    for op in forward:
        if op.kind == "ReadVariableOp":
            layer = _first(layers, (reader.name for reader in readers[op.name]))
            if layer is not None:
                layers[op.name] = layer


def _state_and_updates(
    operations: list[Node],
    readers: dict[str, list[Node]],
    roles: dict[str, Role],
    variables: dict[str, str],
    layers: dict[str, str],
) -> None:
    """Give variables the layer that reads them, update ops that of the variable they lead to."""
    for op in operations:
        owner = variables.get(op.name)
        if owner and owner not in layers and roles[op.name] is _FORWARD and op.name in layers:
            layers[owner] = layers[op.name]
    reach: dict[str, str] = {}
    # Twice: a slot's layer shows only when the ops that read it are known.
    updates = [op for op in reversed(operations) if roles[op.name] is _UPDATE]
    for _ in range(2):
        slots: dict[str, str] = {}
        for op in updates:
            found = [reach[r.name] for r in readers[op.name] if r.name in reach]
            handle = variables.get(op.name)
            if handle in layers:
                found.append(layers[handle])
            elif handle is not None and found:
                slots[handle] = _one([*found, *([slots[handle]] if handle in slots else ())])
            if found:
                reach[op.name] = _one(found)
        layers.update((slot, layer) for slot, layer in slots.items() if layer != _SEVERAL)
    for name, reached in reach.items():
        handle = variables.get(name)
        if handle in layers:
            layers[name] = layers[handle]
        elif reached != _SEVERAL:
            layers[name] = reached
    for name, role in roles.items():  # Variables that stand with another one.
        if role is _VARIABLE and variables[name] in layers:
            layers[name] = layers[variables[name]]


def _one(layers: list[str]) -> str:
    return layers[0] if layers.count(layers[0]) == len(layers) else _SEVERAL


def _rest_of_backward(
    operations: list[Node],
    readers: dict[str, list[Node]],
    roles: dict[str, Role],
    layers: dict[str, str],
) -> None:
    """Gradient ops without a forward name serve one update, or stand with those next to them."""
    nameless = [op for op in operations if roles[op.name] is _BACKWARD and op.name not in layers]
    for_one_update: set[str] = set()
    for op in reversed(nameless):
        names = [reader.name for reader in readers[op.name]]
        if all(roles[name] is _UPDATE or name in for_one_update for name in names):
            found = {layers.get(name) for name in names}
            layer = found.pop() if len(found) == 1 else None
            if layer is not None:
                layers[op.name] = layer
                for_one_update.add(op.name)
    for op in nameless:
        layer = _first(layers, (p.name for p, _ in op.inputs))
        if layer is not None:
            layers.setdefault(op.name, layer)
    for op in reversed(nameless):
        layer = _first(layers, (reader.name for reader in readers[op.name]))
        if layer is not None:
            layers.setdefault(op.name, layer)


def _rest_of_forward(
    operations: list[Node],
    readers: dict[str, list[Node]],
    roles: dict[str, Role],
    variables: dict[str, str],
    layers: dict[str, str],
) -> None:
    """What stands outside layers goes with the one layer that feeds it, or with what it feeds.

    So metrics stand with the loss that they average, and constants with what reads them. What an op
    of the forward pass, or a variable, hands to several layers makes it part of none: so a learning
    rate does not stand with whichever layer happens to be written first.
    """
    rest = [op for op in operations if op.name not in layers and roles[op.name] is not _INPUT]
    found = -1
    while found != len(layers):  # What is found can be what feeds another.
        found = len(layers)
        for op in rest:
            owner = layers.get(variables.get(op.name, ""))
            feeding = {layers[p.name] for p, _ in op.inputs if p.name in layers}
            if owner is not None:
                layers.setdefault(op.name, owner)
            elif roles[op.name] is _FORWARD and len(feeding) == 1:
                layers.setdefault(op.name, feeding.pop())
        for op in reversed(rest):
            reading = [layers[r.name] for r in readers[op.name] if r.name in layers]
            may_be_shared = roles[op.name] in (_FORWARD, _VARIABLE)
            if reading and not (may_be_shared and _one(reading) == _SEVERAL):
                layers.setdefault(op.name, reading[0])


def _first(layers: dict[str, str], names: Iterable[str]) -> str | None:
    return next((layers[name] for name in names if name in layers), None)
