"""What a change does to a step, and why: worse figures, moved layers, changed layers.

Effects: a figure counts beyond its tolerance; times only if the same versions predicted them for
the same devices; budgets always. A search may trade copies and memory for time. Left out:
differences within the tolerances, which may add up over many changes.

Causes of moves: today's `tf.device` scopes say that a scope is gone, or another one, or that the
backward pass has no device any more, or that of a scope around the gradients (`PA101`). Otherwise
the placement changed, or what it places. If no layer moved by an edit of its own: ops without a
kernel where they are placed, then layers that are new, gone or made of other ops, then tensors
that are read elsewhere. Left out: the code of the locked step, of which the lock file keeps only
hashes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from placement_advisor.analysis.findings import scope_rules
from placement_advisor.candidates.references import devices_asked_for
from placement_advisor.check import problem_codes as check_problems
from placement_advisor.check.lock_record import Part, PredictedVerdict
from placement_advisor.check.placements import PlacementFreedom
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.op import PASS_ROLES, Role
from placement_advisor.graph.placement import NO_LAYER
from placement_advisor.units import NS_PER_US, format_bytes, format_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.check.lock_record import Difference, Growth, Move, Record
    from placement_advisor.graph.op_graph import OpGraph
    from placement_advisor.machine.devices import Cluster


# Kernels and buffers of one size come and go as code is written in other words. The edits of
# `tests/check/edits.py` show how much: the 40 harmless ones add 2.6 % to the predicted step at
# most, and nothing to peaks and bytes across. Harmful ones add anything; those that time alone
# shows add 12.6 % and more, and 6.9 % where models have other sizes. So 5 % of the step lies
# between (docs/decisions/0020-a-check-compares-structure.md). 5 % of a peak is judgement: an edit
# that orders a step otherwise may change it. So is 1 % of the bytes: scalars come and go with what
# is logged.
BYTES_TOLERANCE = 0.01
MEMORY_TOLERANCE = 0.05
STEP_TOLERANCE = 0.05
_VERDICT_ORDER = (PredictedVerdict.SINGLE, PredictedVerdict.CANNOT_TELL, PredictedVerdict.SPLIT)
_VERDICT_TEXTS = {
    PredictedVerdict.SPLIT: "faster than one device",
    PredictedVerdict.SINGLE: "no faster than one device",
    PredictedVerdict.CANNOT_TELL: "within doubt of one device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a step may cost: budgets in bytes, and by what share its predicted time may grow."""

    max_transfer_bytes: int | None = None
    max_peak_bytes: int | None = None
    max_step_regression: float = STEP_TOLERANCE


def effects(
    before: Record, after: Record, limits: Limits, freedom: PlacementFreedom
) -> tuple[check_problems.Effect, ...]:
    """Return what became worse than it may, the step's time first."""
    slower = (
        tuple(_time_effects(before, after, limits)) if before.versions == after.versions else ()
    )
    # A search weighs copies and memory against time: without a longer step they are its choice.
    is_choice = freedom is PlacementFreedom.SEARCH and before.versions == after.versions
    if is_choice and not any(effect.code is check_problems.ProblemCode.SLOWER for effect in slower):
        return slower
    return (*slower, *_transfer_effects(before, after), *_memory_effects(before, after))


def improvements(
    before: Record, after: Record, limits: Limits, freedom: PlacementFreedom
) -> Iterator[str]:
    """Say what became better by more than its tolerance, and a verdict that changed otherwise."""
    if before.versions == after.versions:
        growth = _step_growth(before, after)
        if growth < -limits.max_step_regression:
            yield (
                f"better: the predicted step takes {-growth:.1%} less "
                f"({_us_text(before.step_us)} -> {_us_text(after.step_us)})"
            )
        if before.standing is not after.standing and not _verdict_fell(before, after, limits):
            yield _verdict_change(before, after)
        if freedom is PlacementFreedom.SEARCH and growth <= limits.max_step_regression:
            return
    more = after.bytes_across - before.bytes_across
    if more < -BYTES_TOLERANCE * before.bytes_across:
        yield f"better: {signed(more)} across per step"
    if after.copies < before.copies:
        yield f"better: {after.copies - before.copies:+} copies per step"
    for device in after.memory_bytes:
        was, now = before.peak_bytes(device), after.peak_bytes(device)
        if now < (1 - MEMORY_TOLERANCE) * was:
            yield f"better: {device} has a peak of {format_bytes(now)}, not {format_bytes(was)}"


def broken_limits(
    after: Record, limits: Limits, shortages: Mapping[str, str]
) -> tuple[check_problems.Effect, ...]:
    """Return where the step breaks a budget or needs more memory than there is.

    ``shortages`` say of devices what is missing there.
    """
    found = [
        check_problems.Effect(
            code=check_problems.ProblemCode.OUT_OF_MEMORY, what=what, device=device
        )
        for device, what in shortages.items()
    ]
    budget = limits.max_transfer_bytes
    if budget is not None and after.bytes_across > budget:
        found.append(
            check_problems.Effect(
                code=check_problems.ProblemCode.OVER_BUDGET,
                what=f"{format_bytes(after.bytes_across)} cross per step, max_transfer_bytes is "
                f"{format_bytes(budget)}",
                size=after.bytes_across - budget,
                culprits=tuple(
                    f"{cut.tensor} {cut.source} -> {cut.target} {format_bytes(cut.size_bytes)}"
                    for cut in after.cuts[: check_problems.MAX_CULPRITS]
                ),
            )
        )
    memory = limits.max_peak_bytes
    for device in after.memory_bytes if memory is not None else ():
        if after.peak_bytes(device) > (memory or 0):
            held = after.memory_bytes[device]
            most = sorted(held.items(), key=lambda item: (-item[1], item[0]))[
                : check_problems.MAX_CULPRITS
            ]
            found.append(
                check_problems.Effect(
                    code=check_problems.ProblemCode.OVER_BUDGET,
                    what=f"{device} needs {format_bytes(after.peak_bytes(device))} of memory, "
                    f"max_peak_memory is {format_bytes(memory)}",
                    size=after.peak_bytes(device) - (memory or 0),
                    device=device,
                    culprits=tuple(f"{format_bytes(size)} {kind}" for kind, size in most),
                )
            )
    return tuple(found)


def has_grown(effect: check_problems.Effect, before: Record, after: Record) -> bool:
    """Whether what breaks a limit is more than it was."""
    if effect.device:
        return after.peak_bytes(effect.device) > before.peak_bytes(effect.device)
    return after.bytes_across > before.bytes_across


def is_better(before: Record, after: Record) -> bool:
    """Whether what changed is shown to be for the better, or to cost nothing."""
    if after.copies > before.copies or after.bytes_across > before.bytes_across:
        return False
    if before.versions == after.versions:
        return after.step_us <= before.step_us
    return (after.copies, after.bytes_across) != (before.copies, before.bytes_across)


def signed(size_bytes: int | None) -> str:
    """Return bytes with their sign."""
    if size_bytes is None:
        return "of unknown size"
    return f"{'-' if size_bytes < 0 else '+'}{format_bytes(abs(size_bytes))}"


def _time_effects(before: Record, after: Record, limits: Limits) -> Iterator[check_problems.Effect]:
    growth = _step_growth(before, after)
    if growth > limits.max_step_regression:
        yield check_problems.Effect(
            code=check_problems.ProblemCode.SLOWER,
            what=f"the predicted step takes {growth:.1%} longer ({_us_text(before.step_us)} -> "
            f"{_us_text(after.step_us)}, {limits.max_step_regression:.0%} are allowed)",
            size=growth,
        )
    if _verdict_fell(before, after, limits):
        yield check_problems.Effect(
            code=check_problems.ProblemCode.STANDING,
            what=f"{_verdict_change(before, after)}: {_us_text(after.step_us)} against "
            f"{_us_text(after.single_step_us)} on one device",
        )


def _transfer_effects(before: Record, after: Record) -> Iterator[check_problems.Effect]:
    added = after.copies - before.copies
    if added > 0:
        yield check_problems.Effect(
            code=check_problems.ProblemCode.COPIES,
            what=f"{added:+} copies per step ({before.copies} -> {after.copies})",
            size=added,
        )
    more = after.bytes_across - before.bytes_across
    if more > BYTES_TOLERANCE * before.bytes_across:
        yield check_problems.Effect(
            code=check_problems.ProblemCode.BYTES,
            what=f"{signed(more)} across devices per step ({format_bytes(before.bytes_across)} -> "
            f"{format_bytes(after.bytes_across)})",
            size=more,
        )


def _memory_effects(before: Record, after: Record) -> Iterator[check_problems.Effect]:
    for device in after.memory_bytes:
        was, now = before.peak_bytes(device), after.peak_bytes(device)
        if now > (1 + MEMORY_TOLERANCE) * was:
            more = _held_more(before, after, device)
            most = f", above all {next(iter(more))}" if more else ""
            yield check_problems.Effect(
                code=check_problems.ProblemCode.MEMORY,
                what=f"{device}: {signed(now - was)} of peak memory ({format_bytes(was)} -> "
                f"{format_bytes(now)}){most}",
                size=now - was,
                device=device,
                culprits=tuple(f"{signed(size)} {kind}" for kind, size in more.items()),
            )


def _held_more(before: Record, after: Record, device: str) -> dict[str, int]:
    """Return what more is held on a device at its peak, the most first."""
    held = before.memory_bytes.get(device, {})
    more = {kind: size - held.get(kind, 0) for kind, size in after.memory_bytes[device].items()}
    ordered = sorted(more.items(), key=lambda item: (-item[1], item[0]))
    return {kind: size for kind, size in ordered if size > 0}


def _step_growth(before: Record, after: Record) -> float:
    # Rounded, for 1050 / 1000 - 1 is more than 0.05.
    return round(after.step_us / before.step_us - 1, 9) if before.step_us else 0.0


def _verdict_fell(before: Record, after: Record, limits: Limits) -> bool:
    """Whether the placement stands worse against one device, by more than a hair."""
    ratio_before = before.step_us / max(1, before.single_step_us)
    ratio_after = after.step_us / max(1, after.single_step_us)
    return (
        _VERDICT_ORDER.index(after.standing) < _VERDICT_ORDER.index(before.standing)
        and ratio_after > (1 + limits.max_step_regression) * ratio_before
    )


def _verdict_change(before: Record, after: Record) -> str:
    return (
        f"the placement was predicted to be {_VERDICT_TEXTS[before.standing]}, now "
        f"{_VERDICT_TEXTS[after.standing]}"
    )


def _us_text(time_us: int) -> str:
    return format_ns(time_us * NS_PER_US)


_PART_TEXTS = {
    Part.FORWARD: "",
    Part.BACKWARD: "backward pass of ",
    Part.VARIABLES: "variables of ",
}


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

    problem: check_problems.Problem
    moves: tuple[Move, ...]


class _Edit(NamedTuple):
    """A sort of edit that moves layers; to another scope, or to none.

    A backward pass is in the scope around its gradients, if there is one.
    """

    code: check_problems.ProblemCode
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
    left = scope_rules.backward_ops_left_behind(graph, requested_device_of)
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
    placed_at: Callable[[str], check_problems.Place | None],
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
            by_edit[
                _Edit(
                    check_problems.ProblemCode.PLACEMENT_CHANGED
                    if is_file
                    else check_problems.ProblemCode.MOVED
                )
            ].append(move)
    ordered = sorted(by_edit, key=lambda edit: (_CAUSE_ORDER.index(edit.code), edit.of_variables))
    return [_cause(edit, by_edit[edit], lines, placed_at) for edit in ordered]


def cause_in_settings(found: Difference, lines: CodeLines, place: check_problems.Place) -> Cause:
    """Return that the settings, which stand at a place, name another placement than they did."""
    problem = check_problems.Problem(
        code=check_problems.ProblemCode.PLACEMENT_CHANGED,
        what=f"the placement is {found.after.placement}, and was {found.before.placement}",
        culprits=check_problems.first_few(list(move_texts(found.moves, lines))),
        action="take the placement back, or accept it",
        place=place,
    )
    return Cause(problem, found.moves)


def move_texts(moves: Iterable[Move], lines: CodeLines) -> Iterator[str]:
    """Say what moved where, in one phrase what moved alike."""
    parts: defaultdict[tuple[str, str, str], list[Part]] = defaultdict(list)
    for move in moves:
        parts[move.layer, move.before[0], move.after[0]].append(move.part)
    everything = {layer for layer, _, _ in parts}
    alike: defaultdict[tuple[Part, str, str, check_problems.Place | None], list[str]] = defaultdict(
        list
    )
    for (layer, before, after), moved in parts.items():
        # The forward pass is named where it moved: moves have it first.
        place = lines.of_parts([(layer, moved[0])], everything)
        alike[moved[0], before, after, place].append(layer)
    for (part, before, after, place), layers in alike.items():
        yield check_problems.with_place(
            f"{_PART_TEXTS[part]}{check_problems.some_layers(layers)}: {before} -> {after}", place
        )


_CAUSE_ORDER = (
    check_problems.ProblemCode.PLACEMENT_CHANGED,
    check_problems.ProblemCode.SCOPE_CHANGED,
    check_problems.ProblemCode.BACKWARD_LEFT,
    check_problems.ProblemCode.MOVED,
)


def _edit(move: Move, scopes: Scopes, *, is_forward: bool) -> _Edit:
    asked = scopes.device_of.get(move.layer)
    # What reads a variable runs where that is, whatever its scope asks for.
    still_asks = is_forward and asked == move.before[0]
    if still_asks or (move.part is Part.VARIABLES and not is_forward):
        return _Edit(check_problems.ProblemCode.SCOPE_CHANGED, of_variables=True)
    if is_forward:
        return _Edit(check_problems.ProblemCode.SCOPE_CHANGED, is_in_scope=asked is not None)
    if asked == move.after[0]:
        # What reads a variable did not move with its scope, but its backward pass did.
        return _Edit(check_problems.ProblemCode.SCOPE_CHANGED, is_in_scope=True)
    if asked in scopes.left_behind:
        return _Edit(
            check_problems.ProblemCode.BACKWARD_LEFT, is_in_scope=move.layer in scopes.gradients_on
        )
    return _Edit(check_problems.ProblemCode.MOVED)


def _cause(
    edit: _Edit,
    moves: Sequence[Move],
    lines: CodeLines,
    placed_at: Callable[[str], check_problems.Place | None],
) -> Cause:
    first = Part.VARIABLES if edit.of_variables else Part.FORWARD
    leading = [move for move in moves if move.part is first] or moves
    layers = list(dict.fromkeys(move.layer for move in leading))
    moves = [*leading, *(move for move in moves if move not in leading)]
    place = lines.of_parts((move.layer, move.part) for move in leading)
    if edit.code is check_problems.ProblemCode.PLACEMENT_CHANGED:
        place = placed_at(layers[0])
    what, action = _edit_text(edit, moves, len(layers))
    problem = check_problems.Problem(
        code=edit.code,
        what=what,
        culprits=check_problems.first_few(list(move_texts(moves, lines))),
        action=action,
        place=place,
    )
    return Cause(problem, tuple(moves))


def _edit_text(edit: _Edit, moves: Sequence[Move], count: int) -> tuple[str, str]:
    """Return what happened to so many layers, and what to do."""
    left = " and ".join(sorted({move.before[0] for move in moves}))
    here = " and ".join(sorted({move.after[0] for move in moves}))
    layers, run, stand = f"{count} layers", "they run", "stand"
    if count == 1:
        layers, run, stand = "1 layer", "it runs", "stands"
    if edit.code is check_problems.ProblemCode.BACKWARD_LEFT:
        why = "its ops have no device and run on"
        if edit.is_in_scope:
            why = "its gradients are taken in a tf.device scope of"
        return (
            f"the backward pass of {layers} has left {left}: {why} {here}",
            scope_rules.BACKWARD_ACTION,
        )
    if edit.code is check_problems.ProblemCode.PLACEMENT_CHANGED:
        return (
            f"the placement file has {layers} on another device than before",
            "put them back in the file, or accept the move",
        )
    if edit.code is check_problems.ProblemCode.MOVED:
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


# Where ops account for so much of what a step became longer, they are to blame, not what crosses.
_MAIN_SHARE = 0.5


def cause_in_layers(
    found: Difference, freedom: PlacementFreedom, lines: CodeLines, *, is_slower: bool
) -> check_problems.Problem | None:
    """Return what became of layers, None if nothing did.

    A rule or a search goes by what layers there are, so that one that lost its name counts there.
    ``is_slower``: the step is, so that it matters which layers take longer.
    """
    if found.on_host_added:
        return _no_kernel(found, lines)
    slower = _slower_layers(found) if is_slower else []
    changed = _changed_layers(found)
    unnamed = [old for old, new in found.renamed.items() if new == NO_LAYER]
    if freedom is PlacementFreedom.NONE:
        unnamed = []
    if not (changed or found.new or found.gone or unnamed):
        return None
    is_same_graph = found.before.graph == found.after.graph
    parts = [
        (found.gone, "gone"),
        (unnamed, "in no name scope any more"),
        (found.new, "new"),
        (changed, "cut otherwise" if is_same_graph else "made of other ops or sizes"),
    ]
    said = [
        f"{check_problems.some_layers(layers)} {_are(layers)} {how}"
        for layers, how in parts
        if layers
    ]
    if is_same_graph:
        said.insert(0, "the step has the same ops, grouped into other layers")
    elif len(changed) == len(found.after.layers) > 1:
        said = [f"all {len(changed)} layers are made of other ops or sizes, as by another batch"]
    moves = [] if freedom is PlacementFreedom.NONE else move_texts(found.moves, lines)
    action = "check whether these changes are needed, or split the model again with advisor analyze"
    if (found.gone or unnamed) and freedom is not PlacementFreedom.NONE:
        action = "restore the name scope or layer that the placement uses, or accept the change"
    elif is_same_graph:
        action = "accept the change if you updated advisor, or else restore the names"
    here = [*found.new, *(found.renamed[old] for old in unnamed), *changed]
    return check_problems.Problem(
        code=check_problems.ProblemCode.LAYERS_CHANGED,
        what="; ".join(said),
        culprits=check_problems.first_few([*moves, *_slower_texts(slower, lines)]),
        action=action,
        place=_heaviest_place(found, slower, here, lines),
    )


def crossings(found: Difference, lines: CodeLines) -> tuple[str, ...]:
    """Say which tensors cross and did not, the largest first, and which line reads them there."""
    return check_problems.first_few(
        [
            check_problems.with_place(
                f"{cut.tensor} {cut.source} -> {cut.target} {signed(cut.size_bytes)}",
                lines.of_cuts([cut]),
            )
            for cut in found.cuts_added
        ]
    )


def _changed_layers(found: Difference) -> list[str]:
    """Return the layers that are made of other ops than they were, those that grew most first."""
    old_name = {new: old for old, new in found.renamed.items()}
    grown = {growth.layer: growth.before_ns - growth.after_ns for growth in found.growths}
    changed = [
        name
        for name, layer in found.after.layers.items()
        if name not in found.new
        and found.before.layers[old_name.get(name, name)].fingerprint != layer.fingerprint
    ]
    return sorted(changed, key=lambda name: grown.get(name, 0))


def _no_kernel(found: Difference, lines: CodeLines) -> check_problems.Problem:
    kinds = sorted({kind for _, kind in found.on_host_added})
    layers = list(dict.fromkeys(layer for layer, _ in found.on_host_added))
    are, it, they_run = ("is", "it", "it runs") if len(kinds) == 1 else ("are", "them", "they run")
    places = (lines.on_host.get(each) for each in found.on_host_added)
    return check_problems.Problem(
        code=check_problems.ProblemCode.NO_KERNEL,
        what=f"{first_names(kinds, check_problems.MAX_CULPRITS)} in "
        f"{check_problems.some_layers(layers)} {are} placed on a GPU, "
        f"which has no kernel for {it}: {they_run} on the host",
        action=f"take {it} out of the device scope, best into the input pipeline",
        place=next((place for place in places if place is not None), None),
    )


def _slower_texts(slower: Iterable[Growth], lines: CodeLines) -> Iterator[str]:
    for growth in slower:
        more = format_ns(growth.after_ns - growth.before_ns)
        place = lines.of_layer(growth.layer)
        yield check_problems.with_place(f"{check_problems.layer_text(growth.layer)} +{more}", place)


def _slower_layers(found: Difference) -> list[Growth]:
    return [growth for growth in found.growths if growth.after_ns > growth.before_ns]


def _heaviest_place(
    found: Difference, slower: Sequence[Growth], layers: Iterable[str], lines: CodeLines
) -> check_problems.Place | None:
    """Return the line of what weighs most: of layers that take longer, or of what crosses."""
    more_ns = (found.after.step_us - found.before.step_us) * NS_PER_US
    if slower and sum(each.after_ns - each.before_ns for each in slower) >= _MAIN_SHARE * more_ns:
        place = lines.of_layer(slower[0].layer)
        if place is not None:
            return place
    return lines.of_cuts(found.cuts_added) or lines.of_parts(
        (layer, Part.FORWARD) for layer in layers
    )


def _are(layers: Sequence[str]) -> str:
    return "are" if len(layers) > 1 or layers[0] == NO_LAYER else "is"
