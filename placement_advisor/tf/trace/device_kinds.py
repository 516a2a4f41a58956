"""Which kinds of device have a kernel for an op, and what its GPU kernel leaves in host memory.

The registry of kernels answers, GPU kernels included, on machines without a GPU too. A kernel
serves an op if it allows the values of the op's attributes, mostly its types. As TensorFlow does,
we look for a kernel of the device kind first and among those for any device ("DEFAULT") after
that. A kernel for GPUs may do all its work on the host: an int32 sum does, and says so only by
where its tensors are.

A loop or conditional runs its functions on its own device, so it has the kinds that every op in
them has: a table lookup in a loop's body holds the loop on the host. (TensorFlow places such ops
one by one only where it first lowers the loop to single ops, which tracing switches off; `inside`
says what that comes to.) The same holds for a call: TensorFlow can place its body op by op, but on
the host it always runs.

An op that calls Python stands on the host of its process, whatever kernel it has: what the function
computes is not in the graph, and Python computes there.

An op kind that no device has a kernel for is rewritten by TensorFlow before it is placed
(AccumulateNV2, say), so both device kinds are given. An op kind with kernels of which none allows
the op's types has no device kind: it cannot run. Left out: kernels of XLA and TPUs, the memory in
which kernels want their inputs, and ops added by Grappler, which is off when steps are timed.

Source: TensorFlow's `FindKernelRegistration` (op_kernel.cc), `KernelAttrsMatch`
(kernel_def_util.cc), `MemoryTypesForNode` (memory_types.cc), functional_ops.cc.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import kernels, op_def_registry

from placement_advisor.tf.answers import PYTHON_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEVICE_KINDS = frozenset({"CPU", "GPU"})
# Selects among kernels that are registered under a label.
_LABEL = "_kernel"
_ALWAYS_ON_HOST = frozenset({tf.string.as_datatype_enum, tf.resource.as_datatype_enum})
_OPEN = attr_value_pb2.AttrValue()
# TensorFlow tells where their tensors are from their types alone: int32 is on the host as well.
_MEMORY_BY_TYPE = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient", "StatelessWhile", "While"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlacement:
    """Where an op can run.

    ``device_kinds`` are those of CPU and GPU with a kernel for the op. ``host_outputs`` are the
    output ports whose tensor the GPU kernel leaves in host memory; none without a GPU kernel.
    """

    device_kinds: frozenset[str]
    host_outputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpKind:
    """An op kind as it is registered; a function of the graph's own has no definition.

    ``decisive`` names the attributes that tell where its ops can run, ``functional`` those that
    hold functions.
    """

    definition: Any | None
    kernels: tuple[Any, ...]
    decisive: tuple[str, ...]
    functional: tuple[str, ...]


def kernel_placement(
    node: Any, functions: Mapping[str, frozenset[str]] | None = None
) -> KernelPlacement:
    """Return where the op of a NodeDef can run.

    ``functions`` are the `function_device_kinds` of the node's graph; without them, a loop,
    conditional or call counts as an op like any other. An attribute that neither the node nor the
    definition of its kind gives excludes no kernel.
    """
    registered = _op_kind(node.op)
    attributes = node.attr
    values = tuple(
        attributes[name].SerializeToString() if name in attributes else None
        for name in registered.decisive
    )
    own = _placement(node.op, values)
    if not functions:
        return own
    held = [functions[name] for name in _functions_of(node) if name in functions]
    device_kinds = own.device_kinds.intersection(*held)
    if device_kinds == own.device_kinds:
        return own
    return KernelPlacement(
        device_kinds=device_kinds, host_outputs=own.host_outputs if "GPU" in device_kinds else ()
    )


def function_device_kinds(functions: Iterable[Any]) -> dict[str, frozenset[str]]:
    """Return for each FunctionDef the device kinds with a kernel for every op that it runs."""
    kinds: dict[str, frozenset[str]] = {}
    callees: dict[str, set[str]] = {}
    for function in functions:
        name = function.signature.name
        found = (kernel_placement(node).device_kinds for node in function.node_def)
        kinds[name] = DEVICE_KINDS.intersection(*found)
        callees[name] = {called for node in function.node_def for called in _functions_of(node)}
    changed = True
    while changed:  # Functions may call each other in circles.
        changed = False
        for name, called in callees.items():
            narrowed = kinds[name].intersection(*(kinds[other] for other in called & kinds.keys()))
            changed |= narrowed != kinds[name]
            kinds[name] = narrowed
    return kinds


def _functions_of(node: Any) -> list[str]:
    """Return the functions that a node may run: those it names, and its kind if it is a call."""
    registered = _op_kind(node.op)
    found = [node.op] if registered.definition is None else []
    for name in registered.functional:
        value = node.attr.get(name, _OPEN)
        found += [function.name for function in (value.func, *value.list.func) if function.name]
    return found


@cache
def registered_kernels() -> dict[str, list[Any]]:
    """Return all kernels by the kind of their ops; to look for those of one takes 2 ms."""
    by_kind: dict[str, list[Any]] = defaultdict(list)
    for kernel in kernels.get_all_registered_kernels().kernel:
        by_kind[kernel.op].append(kernel)
    return dict(by_kind)


@cache
def _op_kind(kind: str) -> _OpKind:
    definition = op_def_registry.get(kind)
    # The user's code may have loaded ops of its own since.
    registered = registered_kernels().get(kind) or [
        *kernels.get_registered_kernels_for_op(kind).kernel
    ]
    decisive = {constraint.name for kernel in registered for constraint in kernel.constraint}
    for output in definition.output_arg if definition else ():
        decisive |= {output.type_attr, output.number_attr, output.type_list_attr} - {""}
    return _OpKind(
        definition=definition,
        kernels=tuple(registered),
        decisive=(_LABEL, *sorted(decisive)),
        functional=tuple(
            attribute.name
            for attribute in (definition.attr if definition else ())
            if attribute.type in ("func", "list(func)")
        ),
    )


@cache
def _placement(kind: str, values: tuple[bytes | None, ...]) -> KernelPlacement:
    """Return where ops of a kind can run that have these values for its decisive attributes."""
    registered = _op_kind(kind)
    attributes = {
        attribute.name: attribute.default_value
        for attribute in (registered.definition.attr if registered.definition else ())
        if attribute.HasField("default_value")
    }
    for name, value in zip(registered.decisive, values, strict=True):
        if value is not None:
            attributes[name] = attr_value_pb2.AttrValue.FromString(value)
    if not registered.kernels:
        return KernelPlacement(device_kinds=DEVICE_KINDS)
    if kind in PYTHON_CALLS:
        return KernelPlacement(device_kinds=frozenset({"CPU"}))
    kernel_of = {
        device_kind: _kernel(registered.kernels, attributes, device_kind)
        for device_kind in DEVICE_KINDS
    }
    on_gpu = kernel_of["GPU"]
    return KernelPlacement(
        device_kinds=frozenset(d for d, kernel in kernel_of.items() if kernel is not None),
        host_outputs=()
        if on_gpu is None
        else _host_outputs(registered.definition, attributes, on_gpu.host_memory_arg),
    )


def _kernel(registered: Iterable[Any], attributes: Mapping[str, Any], device_kind: str) -> Any:
    """Return the kernel that TensorFlow takes, None if there is none."""
    label = attributes[_LABEL].s.decode() if _LABEL in attributes else ""
    for wanted in (device_kind, "DEFAULT"):
        matching = [
            kernel
            for kernel in registered
            if kernel.device_type == wanted
            and kernel.label == label
            and all(
                _allows(constraint.allowed_values.list, attributes[constraint.name])
                for constraint in kernel.constraint
                if constraint.name in attributes
            )
        ]
        if matching:
            return max(matching, key=lambda kernel: kernel.priority)
    return None


def _allows(allowed: Any, value: Any) -> bool:
    """Return whether a kernel's constraint on an attribute, which is of one type, allows it."""
    if allowed.type:
        types = [value.type] if value.type else value.list.type
        return all(one in allowed.type for one in types)
    return value.s in allowed.s or value.i in allowed.i or value.b in allowed.b


def _host_outputs(
    definition: Any, attributes: Mapping[str, Any], host_arguments: Iterable[str]
) -> tuple[int, ...]:
    """Return the ports that a kernel with these host memory arguments leaves on the host."""
    on_host = _ALWAYS_ON_HOST
    if definition.name in _MEMORY_BY_TYPE:
        on_host |= {tf.int32.as_datatype_enum}
    ports = [
        output.name in host_arguments or type_enum in on_host
        for output in definition.output_arg
        for type_enum in _types(output, attributes)
    ]
    return tuple(port for port, is_host in enumerate(ports) if is_host)


def _types(output: Any, attributes: Mapping[str, Any]) -> list[int]:
    """Return the types of the tensors of an output, which may be a list of them."""
    if output.type_list_attr:
        return list(attributes.get(output.type_list_attr, _OPEN).list.type)
    count = attributes.get(output.number_attr, _OPEN).i if output.number_attr else 1
    return [output.type or attributes.get(output.type_attr, _OPEN).type] * count
