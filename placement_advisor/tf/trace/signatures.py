"""A node as a work formula sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.graph.op_work.signature import Signature

if TYPE_CHECKING:
    from placement_advisor.tf.trace.nodes import Node

# A constant with more elements is data; formulas ask for axes and paddings.
_MAX_ELEMENTS = 64


def signature_of(node: Node) -> Signature:
    """Return the signature of an op."""

    def constant_input(i: int) -> Any:
        if not 0 <= i < len(node.inputs):
            return None
        producer, _ = node.inputs[i]
        if producer.kind != "Const" or (producer.outputs[0].elements or 0) > _MAX_ELEMENTS:
            return None
        value = producer.attribute("value")
        return None if value is None else value.tolist()

    return Signature(
        node.kind,
        tuple([producer.outputs[port] for producer, port in node.inputs]),
        node.outputs,
        node.attribute,
        constant_input,
    )
