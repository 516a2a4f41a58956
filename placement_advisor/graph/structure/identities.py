"""What a file that names some layers and ops of a graph says of them beside their names.

With that, they are found in a graph that computes the same under other names (`numbering`), and
layers one by one in a graph that has changed elsewhere: by what they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from placement_advisor.files.contract import ByName, Count, What
from placement_advisor.graph.structure.fingerprint import layer_fingerprints
from placement_advisor.graph.structure.numbering import numbering

if TYPE_CHECKING:
    from collections.abc import Collection

    from placement_advisor.graph.op_graph import OpGraph

Fingerprint = Annotated[
    str, Field(pattern="^[0-9a-f]{16}$"), What("a hash of 16 hexadecimal digits")
]
Number = Annotated[Count, What("a number")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerIdentity:
    """A layer of a graph beside its name; ops of no layer are those of the layer ""."""

    number: Number
    """Independent of names."""
    made_of: Fingerprint
    """Hash of its ops."""
    ops: ByName[Number]
    """Its ops of `by_op`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """What some layers and ops of a graph are beside their names."""

    fingerprint: Fingerprint
    """Hash of the graph without names."""
    layers: ByName[LayerIdentity]
    """Those of `by_layer`."""

    def __post_init__(self) -> None:
        layers = [layer.number for layer in self.layers.values()]
        ops = [number for layer in self.layers.values() for number in layer.ops.values()]
        if len(set(layers)) < len(layers) or len(set(ops)) < len(ops):
            raise ValueError("two layers or ops have the same number")

    def made_of(self) -> dict[str, str]:
        """Return the hash of what each layer's ops are."""
        return {name: layer.made_of for name, layer in self.layers.items()}

    def layer_of(self) -> dict[str, str]:
        """Return the layer of each op."""
        return {op: name for name, layer in self.layers.items() for op in layer.ops}

    def names_in(self, graph: OpGraph) -> tuple[dict[str, str], dict[str, str]] | None:
        """Return a graph's names of layers and ops by those here, None if it is another graph."""
        here = numbering(graph)
        if here.fingerprint != self.fingerprint:
            return None
        layers = {number: layer or "" for layer, number in here.layers.items()}
        ops = {number: op for op, number in here.ops.items()}
        theirs = {name: layer.number for name, layer in self.layers.items()}
        ops_of = (layer.ops.items() for layer in self.layers.values())
        return (
            {name: layers[number] for name, number in theirs.items() if number in layers},
            {name: ops[number] for each in ops_of for name, number in each if number in ops},
        )


def identities(graph: OpGraph, layers: Collection[str], ops: Collection[str]) -> Identities:
    """Return what a file holds of some layers of a graph, and of some of their ops."""
    numbers, made_of = numbering(graph), layer_fingerprints(graph)
    ops_of: dict[str, dict[str, int]] = {layer: {} for layer in layers}
    for op in ops:
        ops_of[graph.op(op).layer or ""][op] = numbers.ops[op]
    return Identities(
        fingerprint=numbers.fingerprint,
        layers={
            layer: LayerIdentity(
                number=numbers.layers[layer or None], made_of=made_of[layer or None], ops=ops_there
            )
            for layer, ops_there in ops_of.items()
        },
    )
