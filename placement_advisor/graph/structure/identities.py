"""What a file that names some layers and ops of a graph says of them beside their names.

With that, they are found in a graph that computes the same under other names (`numbering`), and
layers one by one in a graph that has changed elsewhere: by what they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from placement_advisor.files.foreign_json import (
    MisfitError,
    as_object,
    field,
    integer,
    object_of,
    text,
)
from placement_advisor.graph.structure.fingerprint import layer_fingerprints
from placement_advisor.graph.structure.numbering import numbering

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from placement_advisor.graph.op_graph import OpGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Numbers of layers and ops in a graph of that fingerprint, and what layers are made of.

    ``layer_of`` has the layer of each op; ops of no layer are those of the layer "".
    """

    fingerprint: str
    layers: Mapping[str, int]
    made_of: Mapping[str, str]
    ops: Mapping[str, int]
    layer_of: Mapping[str, str]

    def names_in(self, graph: OpGraph) -> tuple[dict[str, str], dict[str, str]] | None:
        """Return a graph's names of layers and ops by those here, None if it is another graph."""
        here = numbering(graph)
        if here.fingerprint != self.fingerprint:
            return None
        layers = {number: layer or "" for layer, number in here.layers.items()}
        ops = {number: op for op, number in here.ops.items()}
        return (
            {name: layers[number] for name, number in self.layers.items() if number in layers},
            {name: ops[number] for name, number in self.ops.items() if number in ops},
        )


def identities_json(
    graph: OpGraph, layers: Collection[str], ops: Collection[str]
) -> dict[str, Any]:
    """Return what a file holds of some layers of a graph, and of some of their ops."""
    numbers, made_of = numbering(graph), layer_fingerprints(graph)
    rows: dict[str, dict[str, Any]] = {
        layer: {
            "number": numbers.layers[layer or None],
            "made_of": made_of[layer or None],
            "ops": {},
        }
        for layer in layers
    }
    for op in ops:
        rows[graph.op(op).layer or ""]["ops"][op] = numbers.ops[op]
    return {"fingerprint": numbers.fingerprint, "layers": rows}


def read_identities(value: object) -> Identities:
    """Return what `identities_json` wrote.

    Raises:
        MisfitError: it is something else, or gives two names one number.
    """
    table = as_object(value, ("fingerprint", "layers"))
    layers = field(table, "layers", partial(object_of, _layer))
    return Identities(
        fingerprint=field(table, "fingerprint", text),
        layers=_different({name: layer.number for name, layer in layers.items()}),
        made_of={name: layer.made_of for name, layer in layers.items()},
        ops=_different({op: n for layer in layers.values() for op, n in layer.ops.items()}),
        layer_of={op: name for name, layer in layers.items() for op in layer.ops},
    )


class _Layer(NamedTuple):
    number: int
    made_of: str
    ops: dict[str, int]


def _layer(value: object) -> _Layer:
    table = as_object(value, ("number", "made_of", "ops"))
    return _Layer(
        number=field(table, "number", _number),
        made_of=field(table, "made_of", text),
        ops=field(table, "ops", partial(object_of, _number)),
    )


def _number(value: object) -> int:
    return integer(value, "a number")


def _different(numbers: dict[str, int]) -> dict[str, int]:
    if len(set(numbers.values())) < len(numbers):
        raise MisfitError("two layers or ops have the same number")
    return numbers
