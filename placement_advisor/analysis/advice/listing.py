"""Python code that places a step by hand, as `placement_advisor.place` would.

Model: TensorFlow asks a *device function* for the device of each op that is traced under it, and
gives it the op's name. Names hold scopes, of layers for example, and a gradient bears the name of
its forward op behind ``gradient_tape/``. So the listing has the device of each scope, as few as
reproduce the placement of every op that computes; the longest scope of a name decides. Variables
live where they are created, and what updates them runs there: the listing says which to create
under which `tf.device`.

Left out: ops within functions that the step calls. Their names are other names there.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING

from placement_advisor.graph.name_patterns import listed, name_patterns
from placement_advisor.graph.op import PASS_ROLES, Role
from placement_advisor.graph.placement import placed_ops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from placement_advisor.graph.op import Op
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.graph.placement import Placement

GRADIENT_SCOPE = "gradient_tape/"
_CALL = "PartitionedCall"
# Whoever reads a table finds it wherever it is.
_TABLE = "HashTableV2"
# The title may name many layers.
_TITLE_COLUMNS = 96

# What Keras appends to the name of a layer to tell it from others, in any part of a path.
_NUMBERS = r"(_\d+)+(?=/|$)"

_TEMPLATE = '''\
"""{title}

Two lines do the same, and go by no names: report.md and report.html have them, the documentation a
whole example (docs/place.md). By hand, put your code where this file has ... and step, as comments
1 and 2 say, and call placed_step(*batch) in place of your step.

Generated from a traced step: names are those of its ops."""

import re

import tensorflow as tf

DEVICE = {devices}

# The longest scope that an op's name begins with decides, "" for all others. Gradients stand with
# their forward ops, unless they are listed themselves.
DEVICE_OF_SCOPE = {scopes}

# All scopes of the analysed step that differ from those above in numbers alone. Keras counts the
# layers of a process: in another order, or built once more, they are other layers.
NUMBERED = {numbered}


def scopes_of(name):
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


def device_of(op):
    for name in (op.name, op.name.removeprefix({gradient!r})):
        for scope in scopes_of(name):
            if scope in DEVICE_OF_SCOPE:
                return DEVICE[DEVICE_OF_SCOPE[scope]]
    return DEVICE[DEVICE_OF_SCOPE[""]]


def check_names(ops):
    names = {{op.name for op in ops}}
    listed = {{scope for name in names for scope in scopes_of(name)}}
    missing = DEVICE_OF_SCOPE.keys() - listed - {{""}}
    own = {{s for n in names if not n.startswith({gradient!r}) for s in scopes_of(n)[1:]}}
    without = {{re.sub({numbers!r}, "", scope) for scope in NUMBERED}}
    other = {{scope for scope in own if re.sub({numbers!r}, "", scope) in without}} ^ NUMBERED
    if missing or other:
        raise RuntimeError(
            "this step has other names than the analysed one, so its ops cannot be placed by them: "
            f"see {{', '.join(sorted(missing | other))}}. Build the model first in its process, "
            "and let step be the plain function (of a tf.function: its python_function); or use "
            "placement_advisor.place(), which does not go by names."
        )


# 1. A variable lives where it is created, and is updated there. In place of each ... create those
# that stand behind it, or build the layers that create them; those of an optimizer are put beside
# them by Keras itself.
{variables}

# 2. TensorFlow puts gradients on the default device, whatever `with tf.device` said in the forward
# pass. A device function reaches them, as long as it stands around all of the step. step is
# yours: the function of one training step; of a compiled Keras model, model.train_step.
@tf.function
def placed_step(*batch):
    with tf.compat.v1.device(device_of):
        result = step(*batch)
    check_names(tf.compat.v1.get_default_graph().get_operations())
    return result
'''


def code_listing(graph: OpGraph, placement: Placement, title: str) -> str:
    """Return a Python file that places the step; the user fills in where variables are created."""
    used = sorted(set(placement.device_of.values()))
    scopes = scope_devices(graph, placement)
    text = _TEMPLATE.format(
        title=fill(_one_line(title).replace("\\", "/").replace('"', "'"), _TITLE_COLUMNS),
        devices=_dictionary({name: tf_device(name, i) for i, name in enumerate(used)}),
        scopes=_dictionary(scopes),
        numbered=_set(numbered_scopes(graph, scopes)),
        gradient=GRADIENT_SCOPE,
        numbers=_NUMBERS,
        variables="\n".join(_variables(graph, placement)),
    )
    if any(_CALL in op.name for op in graph.ops):
        text += (
            "\n\n# The step calls functions, whose ops have other names there: use "
            "placement_advisor.place().\n"
        )
    return text


def scope_devices(graph: OpGraph, placement: Placement) -> dict[str, str]:
    """Return the devices of scopes that reproduce those of all forward and backward ops.

    The longest scope that an op's name begins with gives its device; a gradient is looked up
    under its whole name first, then without `GRADIENT_SCOPE`.
    """
    ops = [
        op
        for op in placed_ops(graph)
        # Variables and what updates them stay together, wherever the update is placed.
        if op.role in PASS_ROLES and op.variable is None and not _is_made_on_return(graph, op)
    ]
    device_of = placement.device_of
    root = _Scope()
    for op in ops:
        if not op.name.startswith(GRADIENT_SCOPE):
            root.add(op.name, device_of[op.name])
    found = dict(root.entries(inherited=None))
    found = found or {"": min(placement.device_of.values())}
    apart = {
        op.name: device_of[op.name]
        for op in ops
        if op.name.startswith(GRADIENT_SCOPE) and looked_up(op.name, found) != device_of[op.name]
    }
    return found | apart


def _is_made_on_return(graph: OpGraph, op: Op) -> bool:
    """Say whether TensorFlow makes an op to hand out a result, when no device function is asked."""
    return op.kind == "Identity" and "/" not in op.name and not graph.outputs_of(op.name)


def numbered_scopes(graph: OpGraph, scopes: Iterable[str]) -> list[str]:
    """Return the scopes of a graph that are these, or around them, but for their numbers."""
    own = {
        scope
        for op in graph.ops
        if op.role is not Role.VARIABLE and not op.name.startswith(GRADIENT_SCOPE)
        for scope in _scopes_around(op.name)
    }
    wanted = {
        re.sub(_NUMBERS, "", part) for scope in scopes for part in (scope, *_scopes_around(scope))
    }
    return sorted(scope for scope in own if re.sub(_NUMBERS, "", scope) in wanted)


def _scopes_around(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def looked_up(name: str, scopes: Mapping[str, str]) -> str:
    """Return the device that the listing gives an op."""
    for start in (name, name.removeprefix(GRADIENT_SCOPE)):
        scope = start
        while scope:
            if scope in scopes:
                return scopes[scope]
            scope = scope.rpartition("/")[0]
    return scopes[""]


@dataclass(slots=True)
class _Scope:
    """Ops by the parts of their names."""

    path: str = ""
    parts: dict[str, _Scope] = field(default_factory=dict)
    votes: Counter[str] = field(default_factory=Counter)
    own: str | None = None

    def add(self, name: str, device: str) -> None:
        scope = self
        scope.votes[device] += 1
        for part in name.split("/"):
            path = f"{scope.path}/{part}" if scope.path else part
            scope = scope.parts.setdefault(part, _Scope(path))
            scope.votes[device] += 1
        scope.own = device

    def entries(self, inherited: str | None) -> Iterator[tuple[str, str]]:
        """Yield each scope whose device is not that of the scope around it."""
        if not self.votes:
            return
        # An op's own name may be a scope as well; then it has to be right for the op.
        device = self.own or min(self.votes, key=lambda each: (-self.votes[each], each))
        if device != inherited:
            yield self.path, device
        for part in self.parts.values():
            yield from part.entries(device)


def _variables(graph: OpGraph, placement: Placement) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.role is Role.VARIABLE and op.kind != _TABLE:
            homes[placement.device_of[op.name]].append(op.name)
    every = [name for names in homes.values() for name in names]
    if not every:
        yield "# The step has none."
    for device, names in sorted(homes.items()):
        yield f"with tf.device(DEVICE[{device!r}]):"
        yield f"    ...  # {_one_line(listed(name_patterns(names, every)))}"


def _dictionary(entries: Mapping[str, str]) -> str:
    lines = [f"    {key!r}: {value!r}," for key, value in entries.items()]
    return "\n".join(["{", *lines, "}"])


def _set(names: Iterable[str]) -> str:
    lines = [f"    {name!r}," for name in names]
    return "\n".join(["{", *lines, "}"]) if lines else "set()"


def tf_device(name: str, number: int) -> str:
    """Return a device of TensorFlow's; what only stands in for one is taken for a GPU."""
    kind = name.partition(":")[0]
    return f"/{name}" if kind in ("GPU", "CPU") else f"/GPU:{number}"


def _one_line(text: str) -> str:
    """Return text that stays within its comment; names come from models."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
