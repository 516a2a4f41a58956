"""Ops and nodes by hand, of a text."""

from placement_advisor.graph.op_work.signature import TensorSpec
from placement_advisor.tf.trace.nodes import Node

SCALAR = TensorSpec((), "int32", 4)


class _Attributes:
    """What a node made by hand is made of."""

    def __init__(self, values):
        self._values = values

    def attribute(self, name):
        return self._values.get(name)

    def device(self):
        return ""


def written(text):
    """Return ops, ``{name: (kind, inputs)}``, of a text like ``name = Kind name:port ^before;``."""
    lines = (line.split() for line in text.split(";"))
    return {name: (kind, inputs) for name, _, kind, *inputs in lines}


def nodes_of(ops, attributes=None, specs=None):
    """Return nodes of ops or of their text; a tensor is one int32 unless ``specs`` says more."""
    ops = written(ops) if isinstance(ops, str) else ops
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
