"""Why layers run elsewhere than the lock file has them, told from moves and today's scopes.

Where `tf.device` scopes place a step, those of today say why: a scope is gone, or another one, or
the backward pass has no device any more, or that of a scope around the gradients (`PA101`). Else
the placement changed, or what it places.

Left out: the code of the locked step, of which the lock file keeps nothing. An edit is seen by what
it does to the step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.findings import backward_on_default_device
from placement_advisor.candidates.references import devices_asked_for
from placement_advisor.check.problem import Code, Problem, at, first_few, some
from placement_advisor.check.record import Part
from placement_advisor.graph.op import PASS_ROLES, Role
from placement_advisor.graph.placement import NO_LAYER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.check.difference import Difference, Move
    from placement_advisor.check.problem import Place
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster

_PARTS = {Part.FORWARD: "", Part.BACKWARD: "backward pass of ", Part.VARIABLES: "variables of "}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """What the `tf.device` scopes of today ask for, by the names of the cluster's devices.

    ``device_of`` has the device that most forward ops of each layer ask for, ``gradients_on`` that
    of most backward ops; layers that ask for none lack. No backward pass of what is on the devices
    in ``left_behind`` asks for them. ``is_split``: they name more devices than one.
    """

    device_of: Mapping[str, str]
    gradients_on: Mapping[str, str]
    left_behind: frozenset[str]
    is_split: bool


class Cause(NamedTuple):
    """A problem, as yet without effects, and the moves that are its own."""

    problem: Problem
    moves: tuple[Move, ...]


class _Edit(NamedTuple):
    """A sort of edit that moves layers; to another scope, or to none.

    A backward pass is in the scope around its gradients, if there is one.
    """

    code: Code
    of_variables: bool = False
    is_in_scope: bool = False


def read_scopes(graph: OpGraph, requested_device_of: Mapping[str, str], cluster: Cluster) -> Scopes:
    """Return what the user's scopes ask for."""
    asked = devices_asked_for(requested_device_of)
    called = dict(zip(asked, cluster.device_names(), strict=False))
    votes: dict[Role, defaultdict[str, Counter[str]]] = {
        role: defaultdict(Counter) for role in PASS_ROLES
    }
    for op in graph.ops:
        if op.role in votes and op.name in requested_device_of:
            device = requested_device_of[op.name]
            votes[op.role][op.layer or NO_LAYER][called.get(device, device)] += 1
    forward, backward = (
        {layer: count.most_common(1)[0][0] for layer, count in votes[role].items()}
        for role in (Role.FORWARD, Role.BACKWARD)
    )
    left = backward_on_default_device.left_behind(graph, requested_device_of)
    return Scopes(
        device_of=forward,
        gradients_on=backward,
        left_behind=frozenset(called.get(device, device) for device in left),
        is_split=len(asked) > 1,
    )


def causes_of_moves(
    found: Difference,
    scopes: Scopes | None,
    lines: CodeLines,
    placed_at: Callable[[str], Place | None],
) -> list[Cause]:
    """Return why layers run elsewhere, what concerns their forward pass first.

    ``scopes`` is None where a file says what runs where; ``placed_at`` gives its line for a layer.
    """
    forward = {move.layer for move in found.moves if move.part is Part.FORWARD}
    by_edit: defaultdict[_Edit, list[Move]] = defaultdict(list)
    for move in found.moves:
        if scopes is not None:
            by_edit[_edit(move, scopes, is_forward=move.layer in forward)].append(move)
        else:
            # Under one graph a file that places it otherwise is another file.
            is_file = found.before.graph == found.after.graph
            by_edit[_Edit(Code.PLACEMENT_CHANGED if is_file else Code.MOVED)].append(move)
    ordered = sorted(by_edit, key=lambda edit: (_ORDER.index(edit.code), edit.of_variables))
    return [_cause(edit, by_edit[edit], lines, placed_at) for edit in ordered]


def cause_in_settings(found: Difference, lines: CodeLines, place: Place) -> Cause:
    """Return that the settings, which stand at a place, name another placement than they did."""
    problem = Problem(
        code=Code.PLACEMENT_CHANGED,
        what=f"the placement is {found.after.placement}, and was {found.before.placement}",
        culprits=first_few(list(said_moves(found.moves, lines))),
        action="take the placement back, or accept it",
        place=place,
    )
    return Cause(problem, found.moves)


def said_moves(moves: Iterable[Move], lines: CodeLines) -> Iterator[str]:
    """Say what moved where, in one phrase what moved alike."""
    parts: defaultdict[tuple[str, str, str], list[Part]] = defaultdict(list)
    for move in moves:
        parts[move.layer, move.before[0], move.after[0]].append(move.part)
    everything = {layer for layer, _, _ in parts}
    alike: defaultdict[tuple[Part, str, str, Place | None], list[str]] = defaultdict(list)
    for (layer, before, after), moved in parts.items():
        # The forward pass is named where it moved: moves have it first.
        place = lines.of_parts([(layer, moved[0])], everything)
        alike[moved[0], before, after, place].append(layer)
    for (part, before, after, place), layers in alike.items():
        yield at(f"{_PARTS[part]}{some(layers)}: {before} -> {after}", place)


_ORDER = (Code.PLACEMENT_CHANGED, Code.SCOPE_CHANGED, Code.BACKWARD_LEFT, Code.MOVED)


def _edit(move: Move, scopes: Scopes, *, is_forward: bool) -> _Edit:
    asked = scopes.device_of.get(move.layer)
    # What reads a variable runs where that is, whatever its scope asks for.
    still_asks = is_forward and asked == move.before[0]
    if still_asks or (move.part is Part.VARIABLES and not is_forward):
        return _Edit(Code.SCOPE_CHANGED, of_variables=True)
    if is_forward:
        return _Edit(Code.SCOPE_CHANGED, is_in_scope=asked is not None)
    if asked == move.after[0]:
        # What reads a variable did not move with its scope, but its backward pass did.
        return _Edit(Code.SCOPE_CHANGED, is_in_scope=True)
    if asked in scopes.left_behind:
        return _Edit(Code.BACKWARD_LEFT, is_in_scope=move.layer in scopes.gradients_on)
    return _Edit(Code.MOVED)


def _cause(
    edit: _Edit,
    moves: Sequence[Move],
    lines: CodeLines,
    placed_at: Callable[[str], Place | None],
) -> Cause:
    first = Part.VARIABLES if edit.of_variables else Part.FORWARD
    leading = [move for move in moves if move.part is first] or moves
    layers = list(dict.fromkeys(move.layer for move in leading))
    moves = [*leading, *(move for move in moves if move not in leading)]
    place = lines.of_parts((move.layer, move.part) for move in leading)
    if edit.code is Code.PLACEMENT_CHANGED:
        place = placed_at(layers[0])
    what, action = _words(edit, moves, len(layers))
    problem = Problem(
        code=edit.code,
        what=what,
        culprits=first_few(list(said_moves(moves, lines))),
        action=action,
        place=place,
    )
    return Cause(problem, tuple(moves))


def _words(edit: _Edit, moves: Sequence[Move], count: int) -> tuple[str, str]:
    """Return what happened to so many layers, and what to do."""
    left = " and ".join(sorted({move.before[0] for move in moves}))
    here = " and ".join(sorted({move.after[0] for move in moves}))
    layers, run, stand = f"{count} layers", "they run", "stand"
    if count == 1:
        layers, run, stand = "1 layer", "it runs", "stands"
    if edit.code is Code.BACKWARD_LEFT:
        why = "its ops have no device and run on"
        if edit.is_in_scope:
            why = "its gradients are taken in a tf.device scope of"
        return (
            f"the backward pass of {layers} has left {left}: {why} {here}",
            backward_on_default_device.CURE,
        )
    if edit.code is Code.PLACEMENT_CHANGED:
        return (
            f"the placement file has {layers} on another device than before",
            "put them back in the file, or accept the move",
        )
    if edit.code is Code.MOVED:
        return (
            f"{layers} {run.split()[1]} on another device than before",
            "put them back where they were, or accept the move",
        )
    if edit.of_variables:
        return (
            f"the variables of {layers} are created for {here}, not for {left}",
            "create them in the tf.device scope that they had, or accept the move",
        )
    scope = "another tf.device scope" if edit.is_in_scope else "no tf.device scope any more"
    return (
        f"{layers} {stand} in {scope}: {run} on {here}, not on {left}",
        "put the lines back into the tf.device scope that they had, or accept the move",
    )
