"""What TensorFlow's registries of ops and kernels say about single nodes.

GPU kernels are in the registry on a machine without a GPU too. They are those of the TensorFlow
that is installed, not of the one that the study ran.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels, op_def_registry

from placement_advisor.tf.trace.device_kinds import kernel_placement

if TYPE_CHECKING:
    from collections.abc import Collection

_GPU_KERNELS = ("GPU", "DEFAULT")


class Registries:
    """Answers for nodes of a GraphDef."""

    def device_kinds(self, node: Any) -> Collection[str]:
        """Return the kinds of device with a kernel for the node."""
        return kernel_placement(node).device_kinds

    def takes_state(self, node: Any, port: int) -> bool:
        """Return whether an input is a reference or a resource."""
        argument = _arguments(node)[port]
        return argument.is_ref or _type(argument, node) == types_pb2.DT_RESOURCE

    def is_generator(self, node: Any) -> bool:
        """Return whether the node has no inputs, and one output that is no reference."""
        outputs = op_def_registry.get(node.op).output_arg
        return not node.input and len(outputs) == 1 and not outputs[0].is_ref

    def leaves_on_host(self, node: Any, port: int) -> bool:
        """Return whether a GPU's kernel leaves an output in host memory."""
        return port in kernel_placement(node).host_outputs

    def wants_on_host(self, node: Any, port: int) -> bool:
        """Return whether a GPU's kernel wants an input in host memory."""
        argument = _arguments(node)[port]
        return argument.name in _host_arguments(node) or _type(argument, node) in (
            types_pb2.DT_STRING,
            types_pb2.DT_RESOURCE,
        )


def _arguments(node: Any) -> list[Any]:
    """Return the definition of each input."""
    return [
        argument
        for argument in op_def_registry.get(node.op).input_arg
        for _ in range(_count(argument, node))
    ]


def _count(argument: Any, node: Any) -> int:
    if argument.number_attr:
        return int(node.attr[argument.number_attr].i)
    if argument.type_list_attr:
        return len(node.attr[argument.type_list_attr].list.type)
    return 1


def _type(argument: Any, node: Any) -> int:
    """Return the type of an input, 0 for a list of different types."""
    return int(node.attr[argument.type_attr].type if argument.type_attr else argument.type)


def _host_arguments(node: Any) -> frozenset[str]:
    """Return the arguments that the GPU kernel of a node has in host memory."""
    for kernel in _gpu_kernels(node.op):
        if all(
            node.attr[constraint.name].type in constraint.allowed_values.list.type
            for constraint in kernel.constraint
            if constraint.name in node.attr
        ):
            return frozenset(kernel.host_memory_arg)
    return frozenset()


@cache
def _gpu_kernels(kind: str) -> list[Any]:
    found = kernels.get_registered_kernels_for_op(kind).kernel
    return [kernel for wanted in _GPU_KERNELS for kernel in found if kernel.device_type == wanted]
