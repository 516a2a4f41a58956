"""Instructions that carry out a placement: in words, as a call, and as Python code.

In words: a layer is where most of its forward ops are (of a layer without any: most of its ops).
The sentence names every layer, then the gradients, then the layers that have ops elsewhere. Ops
without a layer are left out: most count steps or hold the learning rate.

As code: TensorFlow calls a *device function* with the name of each op that it traces. Names hold
scopes, and a gradient has the name of its forward op behind ``gradient_tape/``. The listing has
the device of each scope, as few as reproduce the placement of every op that computes; the longest
scope decides. Variables live where they are created, and their updates run there: the listing
says which to create under which `tf.device`. Left out: ops within functions that the step calls,
which have other names there.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING

from placement_advisor.analysis.analysis_result import HowToSplit
from placement_advisor.candidates.batch_split.mirrored_graph import FAMILY as MIRRORED
from placement_advisor.candidates.batch_split.split_graph import FAMILY as BATCH
from placement_advisor.candidates.batch_split.split_graph import ON_HOST, SPREAD, VARIABLES
from placement_advisor.candidates.towers import BATCH_TOWERS, GROUP
from placement_advisor.graph.name_patterns import listed, name_patterns
from placement_advisor.graph.op import PASS_ROLES, Op, Role
from placement_advisor.graph.placement import Placement, most_voted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster


# One line is read, a longer one is looked over. Files have all of it.
MOST_IN_ONE_LINE = 3


def _names_or_count(names: Sequence[str], most: int | None, count: int) -> str:
    """Return names, or how many layers they stand for where they are more than ``most``.

    What is to be followed is told in full, or it is not told: never in part.
    """
    return listed(names) if most is None or len(names) <= most else f"{count} layers"


def layer_devices(graph: OpGraph, placement: Placement) -> dict[str, str]:
    """Return the device of each layer, in the order of the layers."""
    ops: dict[str, list[Op]] = defaultdict(list)
    for op in graph.placed_ops:
        if op.layer is not None:
            ops[op.layer].append(op)
    found = {}
    for layer in graph.layers():
        forward = [op for op in ops[layer] if op.role is Role.FORWARD]
        count = Counter(placement.device_of[op.name] for op in forward or ops[layer])
        if count:  # Of a layer there may be constants alone.
            found[layer] = min(count, key=lambda device: (-count[device], device))
    return found


def placement_in_words(graph: OpGraph, placement: Placement, *, most: int | None = None) -> str:
    """Return the placement in one sentence; it counts layers where that takes more names."""
    device_of = layer_devices(graph, placement)
    if not device_of:
        counts = Counter(placement.device_of.values())
        return ", ".join(f"{_op_count(n)} on {device}" for device, n in sorted(counts.items()))
    ops = [op for op in graph.placed_ops if op.layer in device_of]
    gradients = {placement.device_of[op.name] for op in ops if op.role is Role.BACKWARD}
    if len(gradients) == 1:  # They are told all together, and are no exception.
        ops = [op for op in ops if op.role is not Role.BACKWARD]
    parts = [_layers_text(device_of, most), _gradients_text(device_of, gradients)]
    parts.append(_exceptions_text(ops, placement, device_of, most))
    return "; ".join(filter(None, parts))


def _layers_text(device_of: Mapping[str, str], most: int | None) -> str:
    devices = list(dict.fromkeys(device_of.values()))
    if len(devices) == 1:
        return f"all layers on {devices[0]}"
    patterns = {
        device: name_patterns([n for n in device_of if device_of[n] == device], device_of)
        for device in devices
    }
    # Whichever takes most words is the rest.
    rest = max(devices, key=lambda device: len(patterns[device]))
    named = [device for device in devices if device != rest or len(patterns[rest]) == 1]
    held = Counter(device_of.values())
    words = [
        f"{_names_or_count(patterns[device], most, held[device])} on {device}" for device in named
    ]
    if rest not in named:
        words.append(f"all other layers on {rest}")
    is_named = most is None or all(len(patterns[device]) <= most for device in named)
    return f"{'layers ' if is_named else ''}{', '.join(words)}"


def _gradients_text(device_of: Mapping[str, str], gradients: set[str]) -> str:
    layers = set(device_of.values())
    if len(layers) == 1 and gradients <= layers:
        return ""
    if len(gradients) == 1:
        return f"all gradients on {gradients.pop()}"
    return "their gradients with them" if gradients else ""


def _exceptions_text(
    ops: Iterable[Op], placement: Placement, device_of: Mapping[str, str], most: int | None
) -> str:
    """Return which layers have ops among these apart from them, and where."""
    alike: dict[tuple[Role, str], list[Op]] = defaultdict(list)
    for op in ops:
        if placement.device_of[op.name] != device_of[op.layer or ""]:
            alike[op.role, placement.device_of[op.name]].append(op)
    parts = []
    for (role, device), apart in alike.items():
        layers = {op.layer or "" for op in apart}
        count = _op_count(len(apart), f"{role.value} ")
        named = _names_or_count(name_patterns(layers, device_of), most, len(layers))
        parts.append(f"{count} of {named} on {device}")
    return f"except for {', '.join(parts)}" if parts else ""


def _op_count(count: int, role: str = "") -> str:
    return f"{count} {role}{'op' if count == 1 else 'ops'}"


GRADIENT_SCOPE = "gradient_tape/"
_CALL = "PartitionedCall"
# Whoever reads a table finds it wherever it is.
_TABLE_KIND = "HashTableV2"
# The title may name many layers.
_TITLE_COLUMNS = 96

# What Keras appends to the name of a layer to tell it from others, in any part of a path.
_NUMBERS = r"(_\d+)+(?=/|$)"

_TEMPLATE = '''\
"""{title}

Two lines do the same, and go by no names: report.md and report.html have them, the documentation a
whole example (docs/how-to/place.md). By hand, put your code where this file has ... and step, as
comments 1 and 2 say, and call placed_step(*batch) in place of your step.

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
        devices=_dict_literal({name: tf_device(name, i) for i, name in enumerate(used)}),
        scopes=_dict_literal(scopes),
        numbered=_set_literal(numbered_scopes(graph, scopes)),
        gradient=GRADIENT_SCOPE,
        numbers=_NUMBERS,
        variables="\n".join(_variable_lines(graph, placement)),
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
        for op in graph.placed_ops
        # Variables and what updates them stay together, wherever the update is placed.
        if op.role in PASS_ROLES and op.variable is None and not _is_made_on_return(graph, op)
    ]
    device_of = placement.device_of
    root = _ScopeNode()
    for op in ops:
        if not op.name.startswith(GRADIENT_SCOPE):
            root.add(op.name, device_of[op.name])
    found = dict(root.entries(inherited=None))
    found = found or {"": min(placement.device_of.values())}
    apart = {
        op.name: device_of[op.name]
        for op in ops
        if op.name.startswith(GRADIENT_SCOPE)
        and device_by_scope(op.name, found) != device_of[op.name]
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


def device_by_scope(name: str, scopes: Mapping[str, str]) -> str:
    """Return the device that the listing gives an op."""
    for start in (name, name.removeprefix(GRADIENT_SCOPE)):
        for scope in (start, *reversed(_scopes_around(start))):
            if scope in scopes:
                return scopes[scope]
    return scopes[""]


@dataclass(slots=True)
class _ScopeNode:
    """Ops by the parts of their names."""

    path: str = ""
    parts: dict[str, _ScopeNode] = field(default_factory=dict)
    votes: Counter[str] = field(default_factory=Counter)
    own: str | None = None

    def add(self, name: str, device: str) -> None:
        scope = self
        scope.votes[device] += 1
        for part in name.split("/"):
            path = f"{scope.path}/{part}" if scope.path else part
            scope = scope.parts.setdefault(part, _ScopeNode(path))
            scope.votes[device] += 1
        scope.own = device

    def entries(self, inherited: str | None) -> Iterator[tuple[str, str]]:
        """Yield each scope whose device is not that of the scope around it."""
        if not self.votes:
            return
        # An op's own name may be a scope as well; then it has to be right for the op.
        device = self.own or most_voted(self.votes)
        if device != inherited:
            yield self.path, device
        for part in self.parts.values():
            yield from part.entries(device)


def _variable_lines(graph: OpGraph, placement: Placement) -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for op in graph.ops:
        if op.role is Role.VARIABLE and op.kind != _TABLE_KIND:
            homes[placement.device_of[op.name]].append(op.name)
    every = [name for names in homes.values() for name in names]
    if not every:
        yield "# The step has none."
    for device, names in sorted(homes.items()):
        yield f"with tf.device(DEVICE[{device!r}]):"
        yield f"    ...  # {_one_line(listed(name_patterns(names, every)))}"


def _dict_literal(entries: Mapping[str, str]) -> str:
    lines = [f"    {key!r}: {value!r}," for key, value in entries.items()]
    return "\n".join(["{", *lines, "}"])


def _set_literal(names: Iterable[str]) -> str:
    lines = [f"    {name!r}," for name in names]
    return "\n".join(["{", *lines, "}"]) if lines else "set()"


def tf_device(name: str, number: int) -> str:
    """Return a device of TensorFlow's; what only stands in for one is taken for a GPU."""
    kind = name.partition(":")[0]
    return f"/{name}" if kind in ("GPU", "CPU") else f"/GPU:{number}"


def _one_line(text: str) -> str:
    """Return text that stays within its comment; names come from models."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


# What stands for `step` and `inputs` is not known here: the analysis may have made them.
_FILL_IN = """import placement_advisor

# step is yours: the compiled Keras model, or the function of one training step. inputs is one batch
# for it: (x, y) of a Keras model, the arguments of a function.
"""
_PLACE = (
    _FILL_IN
    + """step = placement_advisor.place(step, {file}, *inputs)
"""
)
_PARALLEL = (
    _FILL_IN + "step = placement_advisor.make_parallel("
    "step, {devices}, ratios={ratios}{variables}, inputs=inputs)\n"
)
_OVER_PAIRS = (
    _FILL_IN
    + """step = placement_advisor.make_parallel(
    step, {groups}, ratios={ratios}, placement={file}, inputs=inputs
)
"""
)
_MIRRORED = """import tensorflow as tf

strategy = tf.distribute.MirroredStrategy({devices})
with strategy.scope():
    model = make_model()  # make and compile the model here
model.fit(dataset)  # batches of {batch}: {samples} on each device
"""


def how_to_split(graph: OpGraph, placement: Placement, folder: Path) -> HowToSplit:
    """Return how to carry out a placement of the graph, which an analysis writes into a folder."""
    words = placement_in_words(graph, placement)
    return HowToSplit(
        candidate=placement.label,
        words=words,
        words_in_short=placement_in_words(graph, placement, most=MOST_IN_ONE_LINE),
        call=_PLACE.format(file=_placement_path(folder, placement.label)),
        listing=code_listing(graph, placement, f"{placement.label}: {words}."),
    )


def how_to_split_batch(
    label: str, family: str, samples: Sequence[int], cluster: Cluster, folder: Path
) -> HowToSplit:
    """Return how to carry out a split of the batch, with so many samples for each replica.

    ``family`` says where variables stand, and whether a replica is a device or a pair of them, each
    laid out as a file of the analysis in ``folder`` says.
    """
    names, host = cluster.device_names(), cluster.devices[0].host
    each = GROUP if family == BATCH_TOWERS else 1
    groups = [names[each * i : each * (i + 1)] for i in range(len(samples))]
    held = [" and ".join(group) for group in groups]
    shares = ", ".join(f"{n} on {where}" for n, where in zip(samples, held, strict=True))
    of_batch = f"of the {sum(samples)} samples of a batch"
    words = f"{of_batch} {shares}"
    real = [[tf_device(name, names.index(name)) for name in group] for group in groups]
    devices = json.dumps([device for group in real for device in group])
    if family == MIRRORED:
        words = (
            f"{samples[0]} {of_batch} on each of {', '.join(held)}; all have the variables and "
            "update them from gradients that they exchange"
        )
        call = _MIRRORED.format(devices=devices, batch=sum(samples), samples=samples[0])
    elif family == BATCH_TOWERS:
        words += (
            f", every pair laid out as placements/{label}.json says; variables and their update "
            f"on {held[0]}"
        )
        file = _placement_path(folder, label)
        call = _OVER_PAIRS.format(groups=json.dumps(real), ratios=list(samples), file=file)
    else:
        where = {
            BATCH: f"on {held[0]}",
            ON_HOST: f"on {host}",
            SPREAD: "spread over these, by size",
        }
        words += f", gradients with them; variables and their update {where[family]}"
        variables = "" if family == BATCH else f', variables="{VARIABLES[family]}"'
        call = _PARALLEL.format(devices=devices, ratios=list(samples), variables=variables)
    return HowToSplit(candidate=label, words=words, words_in_short=words, call=call, listing=None)


def _placement_path(folder: Path, label: str) -> str:
    """Return the path of a candidate's placement file, from where the analysis was asked for."""
    return json.dumps((folder / "placements" / f"{label}.json").as_posix(), ensure_ascii=False)
