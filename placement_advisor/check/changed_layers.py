"""What became of layers where none of them moved by an edit of its own: the rest of the causes.

Ops that have no kernel where they are placed come first; else layers that are new, gone or made of
other ops; else nothing but tensors that are read elsewhere.

Left out: which size or line within a layer changed, of which the lock file keeps a hash alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.check.causes import said_moves
from placement_advisor.check.effects import signed
from placement_advisor.check.placements import Freedom
from placement_advisor.check.problem import MAX_CULPRITS, Code, Problem, at, called, first_few, some
from placement_advisor.check.record import Part
from placement_advisor.graph.name_patterns import first_names
from placement_advisor.graph.placement import NO_LAYER
from placement_advisor.units import NS_PER_US, format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from placement_advisor.check.code_lines import CodeLines
    from placement_advisor.check.difference import Difference, Growth
    from placement_advisor.check.problem import Place

# Where ops account for so much of what a step became longer, they are to blame, not what crosses.
_MOST = 0.5


def cause_in_layers(
    found: Difference, freedom: Freedom, lines: CodeLines, *, is_slower: bool
) -> Problem | None:
    """Return what became of layers, None if nothing did.

    A rule or a search goes by what layers there are, so that one that lost its name counts there.
    ``is_slower``: the step is, so that it matters which layers take longer.
    """
    if found.on_host_added:
        return _no_kernel(found, lines)
    slower = _slower(found) if is_slower else []
    changed = _changed(found)
    unnamed = [old for old, new in found.renamed.items() if new == NO_LAYER]
    if freedom is Freedom.NONE:
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
    said = [f"{some(layers)} {_are(layers)} {how}" for layers, how in parts if layers]
    if is_same_graph:
        said.insert(0, "the step has the same ops, grouped into other layers")
    elif len(changed) == len(found.after.layers) > 1:
        said = [f"all {len(changed)} layers are made of other ops or sizes, as by another batch"]
    moves = [] if freedom is Freedom.NONE else said_moves(found.moves, lines)
    action = "see whether they need to be so, or split the model anew with advisor analyze"
    if (found.gone or unnamed) and freedom is not Freedom.NONE:
        action = "put the name scope or layer back that the placement went by, or accept the change"
    elif is_same_graph:
        action = "accept the change if advisor is another one, or else put names back"
    here = [*found.new, *(found.renamed[old] for old in unnamed), *changed]
    return Problem(
        code=Code.LAYERS_CHANGED,
        what="; ".join(said),
        culprits=first_few([*moves, *_grown(slower, lines)]),
        action=action,
        place=_place(found, slower, here, lines),
    )


def crossings(found: Difference, lines: CodeLines) -> tuple[str, ...]:
    """Say which tensors cross and did not, the largest first, and which line reads them there."""
    return first_few(
        [
            at(
                f"{cut.tensor} {cut.source} -> {cut.target} {signed(cut.size_bytes)}",
                lines.of_cuts([cut]),
            )
            for cut in found.cuts_added
        ]
    )


def _changed(found: Difference) -> list[str]:
    """Return the layers that are made of other ops than they were, those that grew most first."""
    old_name = {new: old for old, new in found.renamed.items()}
    grown = {growth.layer: growth.before_us - growth.after_us for growth in found.growths}
    changed = [
        name
        for name, layer in found.after.layers.items()
        if name not in found.new
        and found.before.layers[old_name.get(name, name)].fingerprint != layer.fingerprint
    ]
    return sorted(changed, key=lambda name: grown.get(name, 0))


def _no_kernel(found: Difference, lines: CodeLines) -> Problem:
    kinds = sorted({kind for _, kind in found.on_host_added})
    layers = list(dict.fromkeys(layer for layer, _ in found.on_host_added))
    are, it, they_run = ("is", "it", "it runs") if len(kinds) == 1 else ("are", "them", "they run")
    places = (lines.on_host.get(each) for each in found.on_host_added)
    return Problem(
        code=Code.NO_KERNEL,
        what=f"{first_names(kinds, MAX_CULPRITS)} in {some(layers)} {are} placed on a GPU, which "
        f"has no kernel for {it}: {they_run} on the host",
        action=f"take {it} out of the device scope, best into the input pipeline",
        place=next((place for place in places if place is not None), None),
    )


def _grown(slower: Iterable[Growth], lines: CodeLines) -> Iterator[str]:
    for growth in slower:
        more = format_ns((growth.after_us - growth.before_us) * NS_PER_US)
        place = lines.of_parts([(growth.layer, Part.FORWARD)])
        yield at(f"{called(growth.layer)} +{more}", place)


def _slower(found: Difference) -> list[Growth]:
    return [growth for growth in found.growths if growth.after_us > growth.before_us]


def _place(
    found: Difference, slower: Sequence[Growth], layers: Iterable[str], lines: CodeLines
) -> Place | None:
    """Return the line of what weighs most: of layers that take longer, or of what crosses."""
    more_us = found.after.step_us - found.before.step_us
    if slower and sum(each.after_us - each.before_us for each in slower) >= _MOST * more_us:
        place = lines.of_parts([(slower[0].layer, Part.FORWARD)])
        if place is not None:
            return place
    return lines.of_cuts(found.cuts_added) or lines.of_parts(
        (layer, Part.FORWARD) for layer in layers
    )


def _are(layers: Sequence[str]) -> str:
    return "are" if len(layers) > 1 or layers[0] == NO_LAYER else "is"
