"""Small graphs of nodes by hand, without TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.graph.op_work.signature import TensorSpec
from placement_advisor.tf.trace.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SCALAR = TensorSpec((), "int32", 4)

Ops = dict[str, tuple[str, list[str]]]


class _Attributes:
    """What a node made by hand is made of."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def attribute(self, name: str) -> Any:
        return self._values.get(name)

    def definition(self) -> Any:
        raise NotImplementedError

    def device(self) -> str:
        return ""


def nodes_of(
    ops: Mapping[str, tuple[str, Sequence[str]]],
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    specs: Mapping[str, Sequence[TensorSpec]] | None = None,
) -> list[Node]:
    """Return nodes from ``{name: (kind, inputs)}``, inputs as ``name``, ``name:port``, ``^name``.

    A tensor is one int32 unless ``specs`` says otherwise.
    """
    nodes = {
        name: Node(name, kind, _Attributes((attributes or {}).get(name, {})))
        for name, (kind, _) in ops.items()
    }
    for name, (_, references) in ops.items():
        node = nodes[name]
        for reference in references:
            source, _, port = reference.removeprefix("^").partition(":")
            if reference.startswith("^"):
                node.controls.append(nodes[source])
            else:
                node.inputs.append((nodes[source], int(port or 0)))
        # Enough ports for all kinds that are used here.
        node.outputs = tuple((specs or {}).get(name, (SCALAR, SCALAR)))
    return list(nodes.values())


def ops_of(nodes: Iterable[Node]) -> Ops:
    """Return nodes as `nodes_of` takes them."""
    return {
        node.name: (
            node.kind,
            [f"{p.name}:{port}" if port else p.name for p, port in node.inputs]
            + [f"^{before.name}" for before in node.controls],
        )
        for node in nodes
    }
