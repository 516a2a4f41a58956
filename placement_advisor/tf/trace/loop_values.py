"""Gives the bodies of loops and conditionals the values of variables that they only read.

TensorFlow hands a loop the handles of the variables that its body reads, as a recurrent layer's
does. An op with a handle stands with its variable, so that such a loop could run nowhere else, nor
in several copies. A variable that a body only reads has one value from its beginning to its end: it
is read once, before, and the loop is handed that. What a loop writes keeps its handle, and so does
what it looks up rows of: a read may copy all of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from placement_advisor.tf.trace.captures import Variable

_HOLDERS = LOOP_KINDS | BRANCH_KINDS | CALL_KINDS
# What reads a variable, and the op that does so from its value.
_FROM_VALUE = {
    "Identity": "Identity",
    "ReadVariableOp": "Identity",
    "VariableShape": "Shape",
}
_READ = "ReadVariableOp"
_READ_ONLY_INPUTS = "_read_only_resource_inputs"


def takes_handles(nodes: Iterable[Any], variables: Collection[str]) -> bool:
    """Say whether a loop or conditional is among the nodes that is handed a variable."""
    return any(
        node.kind in _HOLDERS and any(producer.name in variables for producer, _ in node.inputs)
        for node in nodes
    )


def give_values(graph_def: Any, variables: Mapping[str, Variable], tag: str) -> Any:
    """Return a graph whose loops and conditionals are handed values, where they only read.

    ``variables`` go by the names of their handles. Reads inherit the attribute ``tag`` of the loop.
    """
    given = tf.compat.v1.GraphDef()
    given.CopyFrom(graph_def)
    _Values(given).give(variables, tag)
    return given


class _Values:
    def __init__(self, graph_def: Any) -> None:
        self._graph_def = graph_def
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        self._written: dict[tuple[str, tuple[tuple[int, tuple[int, ...]], ...]], str] = {}

    def give(self, variables: Mapping[str, Variable], tag: str) -> None:
        """Change the graph."""
        for node in list(self._graph_def.node):
            if node.op not in _HOLDERS:
                continue
            read = {
                place: variables[reference]
                for place, reference in enumerate(node.input)
                if reference in variables and self._only_reads(node, place)
            }
            if node.op in LOOP_KINDS:
                self._redirect({f"{node.name}:{place}": node.input[place] for place in read})
            for place in read:
                node.input[place] = self._read(node, place, variables, tag)
            self._hand(node, read)

    def _redirect(self, renamed: Mapping[str, str]) -> None:
        """Make who takes a handle that a loop gives back as it was take it from its source."""
        for node in self._graph_def.node if renamed else ():
            for number, reference in enumerate(node.input):
                node.input[number] = renamed.get(reference, reference)

    def _read(self, node: Any, place: int, variables: Mapping[str, Variable], tag: str) -> str:
        """Add a read of a variable before a node, and return its name."""
        handle = node.input[place]
        read = self._graph_def.node.add(
            name=f"{node.name}/read_{place}", op=_READ, device=node.device
        )
        read.input.append(handle)
        read.input.extend(reference for reference in node.input if reference.startswith("^"))
        read.attr["dtype"].type = variables[handle].dtype.as_datatype_enum
        if tag in node.attr:
            read.attr[tag].CopyFrom(node.attr[tag])
        return str(read.name)

    def _only_reads(self, node: Any, place: int) -> bool:
        """Say whether all functions of a node only read what they are handed at a place."""
        place -= node.op in BRANCH_KINDS  # A branch is not handed what chooses it.
        is_loop = node.op in LOOP_KINDS
        return place >= 0 and all(
            self._reads_alone(self._functions[name], place, is_loop=is_loop)
            for name in _functions_of(node)
        )

    def _reads_alone(self, function: Any, place: int, *, is_loop: bool) -> bool:
        """Say whether a function only reads an argument; a loop may give it back where it was."""
        passed = {function.signature.input_arg[place].name}
        for node in function.node_def:  # Producers come first, as they were traced.
            if node.op == "Identity" and node.input[0] in passed:
                passed.add(f"{node.name}:output:0")
        for number, output in enumerate(function.signature.output_arg):
            is_own = is_loop and number == place and output.type == tf.resource
            if (function.ret[output.name] in passed) != is_own:
                return False
        return all(
            self._is_read(function, node, number)
            for node in function.node_def
            for number, reference in enumerate(node.input)
            if reference in passed
        )

    def _is_read(self, function: Any, node: Any, place: int) -> bool:
        """Say whether a node of a function only reads what it takes at a place."""
        if node.op in _FROM_VALUE:
            return place == 0
        if node.op not in _HOLDERS or not self._only_reads(node, place):
            return False
        given_back = f"{node.name}:output:{place}"
        others = (reference for other in function.node_def for reference in other.input)
        return given_back not in function.ret.values() and given_back not in others

    def _hand(self, node: Any, values: Mapping[int, Variable]) -> None:
        """Make a node take values at some places, and its functions with it."""
        if not values:
            return
        offset = int(node.op in BRANCH_KINDS)
        inner = {place - offset: held for place, held in values.items()}
        for attribute in node.attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name in self._functions:
                    function.name = self._with_values(
                        function.name, inner, is_loop=node.op in LOOP_KINDS
                    )
        types = node.attr["T" if node.op in LOOP_KINDS else "Tin"].list.type
        for place, held in inner.items():
            types[place] = held.dtype.as_datatype_enum
            if node.op in LOOP_KINDS and node.attr["output_shapes"].list.shape:
                shape = tf.TensorShape(held.shape).as_proto()
                node.attr["output_shapes"].list.shape[place].CopyFrom(shape)
        node.attr.pop(_READ_ONLY_INPUTS, None)
        node.attr.pop("_output_shapes", None)

    def _with_values(self, name: str, values: Mapping[int, Variable], *, is_loop: bool) -> str:
        """Return the name of the function that takes values at some places."""
        key = name, tuple(sorted((place, held.shape) for place, held in values.items()))
        if key in self._written:
            return self._written[key]
        self._written[key] = f"{name}_values_{len(self._written)}"
        function = self._graph_def.library.function.add()
        function.CopyFrom(self._functions[name])
        function.signature.name = self._written[key]
        arguments = [argument.name for argument in function.signature.input_arg]
        held_as = {arguments[place]: held for place, held in values.items()}
        for place, held in values.items():
            _retype(function.signature.input_arg[place], held)
            function.arg_attr.pop(place, None)
            if is_loop and place < len(function.signature.output_arg):
                returned = function.signature.output_arg[place]
                if returned.type == tf.resource:
                    _retype(returned, held)
        renamed = dict(self._rewritten(function, held_as))
        for node in function.node_def:
            for number, reference in enumerate(node.input):
                node.input[number] = renamed.get(reference, reference)
        for output, reference in function.ret.items():
            function.ret[output] = renamed.get(reference, reference)
        return self._written[key]

    def _rewritten(self, function: Any, held_as: dict[str, Variable]) -> Iterator[tuple[str, str]]:
        """Make a function's nodes read values; yield what their outputs are called now."""
        for node in function.node_def:
            handed = {i: held_as[ref] for i, ref in enumerate(node.input) if ref in held_as}
            if not handed:
                continue
            if node.op in _HOLDERS:
                self._hand(node, handed)
                continue
            held = handed[0]
            kind, node.op = node.op, _FROM_VALUE[node.op]
            node.attr.pop("_class", None)
            if kind == _READ:
                node.attr.pop("dtype", None)
                yield f"{node.name}:value:0", f"{node.name}:output:0"
            if kind == "Identity":
                held_as[f"{node.name}:output:0"] = held
            node.attr["T"].type = held.dtype.as_datatype_enum


def _functions_of(node: Any) -> list[str]:
    return [
        function.name
        for attribute in node.attr.values()
        for function in (attribute.func, *attribute.list.func)
        if function.name
    ]


def _retype(argument: Any, held: Variable) -> None:
    argument.type = held.dtype.as_datatype_enum
    argument.ClearField("handle_data")
