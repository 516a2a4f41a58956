"""Flattens a traced function: one graph without calls, free to be placed, with its state found.

Calls are opened by TensorFlow's own function optimizer, and loops are given the values of
variables that they only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.grappler import tf_optimizer

from placement_advisor.errors import ModelError
from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS
from placement_advisor.tf.answers import PYTHON_CALLS
from placement_advisor.tf.trace import bundle
from placement_advisor.tf.trace.bundle import Bundle, Variable
from placement_advisor.tf.trace.loops import Loop, folded, frames
from placement_advisor.tf.trace.nodes import Node, named_functions, needed, read
from placement_advisor.tf.trace.op_layers import LAYER_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Container,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from placement_advisor.graph.op_work.signature import TensorSpec


def suffix_functions(graph_def: Any, suffix: str) -> None:
    """Give each function of a graph, wherever it is named, a name that ends in ``suffix``."""
    own = {function.signature.name for function in graph_def.library.function}
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    for node in nodes:
        if node.op in own:
            node.op += suffix
        for function in named_functions(node):
            if function.name in own:
                function.name += suffix
    for function in graph_def.library.function:
        function.signature.name += suffix
    for gradient in graph_def.library.gradient:
        gradient.function_name += suffix
        gradient.gradient_func += suffix


_INLINED_KINDS = CALL_KINDS | {"SymbolicGradient"}
# XLA would ignore devices inside a call, and the others keep a call from being inlined. Colocation
# names ops as they were before they were inlined and renamed; a placement keeps state together.
_CASES = ("Case", "StatelessCase")
_UNWANTED = ("_XlaMustCompile", "_noinline", "_XlaHasReferenceVars", "api_implements", "_class")


def graph_has_calls(kinds: Iterable[str], functions: Iterable[str]) -> bool:
    """Return whether a graph of these kinds calls a function (TF1 calls one by its name)."""
    return not _INLINED_KINDS.union(functions).isdisjoint(kinds)


def is_for_xla(graph: Any) -> bool:
    """Return whether XLA is to compile functions that a traced graph calls."""
    mark = _UNWANTED[0]
    held = (function.cached_definition for function in graph._functions.values())
    return any(mark in found.attr and found.attr[mark].b for found in held)


def strip_functions(graph_def: Any) -> Any:
    """Remove what binds ops to each other or to XLA; loops and conditionals are not lowered."""
    graph_def = convert_to_constants.disable_lower_using_switch_merge(graph_def)
    for holder in _attribute_holders(graph_def):
        for attribute in _UNWANTED:
            holder.attr.pop(attribute, None)
        if getattr(holder, "op", None) in _CASES:  # That function knows loops and ifs alone.
            holder.attr["_lower_using_switch_merge"].b = False
    return graph_def


def inline(graph_def: Any, keep: Iterable[str], tag: str) -> Any:
    """Return a stripped graph with all calls inlined; ``keep`` names ops that must survive.

    What is inlined inherits the attribute ``tag`` of its call.
    """
    tags = {node.name: node.attr[tag] for node in graph_def.node if tag in node.attr}
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(sorted(keep))
    config = config_pb2.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    rewrite.optimizers.append("function")
    flat = tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False)
    for node in flat.node:
        node.attr.pop("_class", None)  # Inlining writes new wishes for colocation.
        call = node.name
        while tags and tag not in node.attr and call:
            call = call.rpartition("/")[0]
            if call in tags:
                node.attr[tag].CopyFrom(tags[call])
    return flat


def _attribute_holders(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield function
        yield from function.node_def


_SUMMARY_KINDS = frozenset(
    {
        "WriteSummary",
        "WriteScalarSummary",
        "WriteHistogramSummary",
        "WriteImageSummary",
        "WriteAudioSummary",
        "WriteGraphSummary",
        "WriteRawProtoSummary",
        "FlushSummaryWriter",
    }
)


def find_summaries(nodes: Iterable[Node]) -> set[str]:
    """Return the ops that write summaries for TensorBoard, and what only they read.

    They change no result, and their writer lives in the process that has made it.
    """
    nodes = list(nodes)
    writing = {node.name for node in nodes if node.kind in _SUMMARY_KINDS}
    if not writing:
        return set()
    read_by: dict[str, set[str]] = {}
    for node in nodes:
        for producer, _ in node.inputs:
            read_by.setdefault(producer.name, set()).add(node.name)
    for node in reversed(nodes):
        if node.name in read_by and read_by[node.name] <= writing:
            writing.add(node.name)
    return writing


def without_nodes(nodes: Iterable[Node], names: Collection[str]) -> list[Node]:
    """Return the nodes but for those named; nothing waits for these any more."""
    nodes = [node for node in nodes if node.name not in names]
    for node in nodes:
        if names and any(before.name in names for before in node.controls):
            node.controls = [before for before in node.controls if before.name not in names]
    return nodes


def lift_control_inputs_of_constants(nodes: Iterable[Node], fixed: Container[int] = ()) -> None:
    """Hand what a constant waits for to its readers, so that constants can stand anywhere.

    The nodes in ``fixed``, by their `id`, keep what they have: a constant in a v1 loop is in the
    loop by what it waits for.
    """
    lifted: dict[int, list[Node]] = {}

    def waits(constant: Node) -> list[Node]:
        """Return what a constant waits for that is not a constant itself."""
        if id(constant) not in lifted:
            found = [
                wait
                for before in constant.controls
                for wait in (waits(before) if before.kind == "Const" else [before])
            ]
            lifted[id(constant)] = _distinct(found)
        return lifted[id(constant)]

    nodes = [node for node in nodes if id(node) not in fixed]
    for node in nodes:
        if node.kind == "Const":
            continue
        read = [p for p, _ in node.inputs if p.kind == "Const" and p.controls]
        read += [before for before in node.controls if before.kind == "Const"]
        if read:
            added = [wait for constant in read for wait in waits(constant)]
            kept = [before for before in node.controls if before.kind != "Const"]
            node.controls = _distinct([*kept, *added])
    for node in nodes:
        if node.kind == "Const":
            node.controls = []


def drop_barriers(
    nodes: Iterable[Node], outputs: Collection[str], targets: Collection[str]
) -> list[Node]:
    """Let outputs go without waiting for updates that run anyway.

    A tf.function makes its outputs wait for all its side effects, through one NoOp on one device:
    a signal from every update on every other device. Runners wait for all targets themselves.
    """
    keep = {*outputs, *targets}
    nodes = list(nodes)
    for node in nodes:
        if node.name in outputs:
            node.controls = []
    nodes = _without_unread_barriers(nodes, keep)
    for node in nodes:
        if node.controls and any(_is_idle(before) for before in node.controls):
            node.controls = [before for before in node.controls if not _is_idle(before)]
    return _without_unread_barriers(nodes, keep)


def bypass_identities(
    nodes: Iterable[Node], outputs: Collection[str], targets: Sequence[str]
) -> tuple[list[Node], tuple[str, ...]]:
    """Let readers of an op that only passes tensors on read what it was given.

    That is IdentityN: Keras sends all dense gradients of a step through one (a sum over replicas,
    of which there is one), so on two devices every gradient would cross to it and back. And the
    Identity ops that inlining leaves at the borders of a function. Outputs stay. Returns the nodes
    that stay, and the targets; a call among them is replaced by the side effects that it waited
    for.
    """
    nodes = list(nodes)
    bypassed = {
        id(node)
        for node in nodes
        if (node.kind == "IdentityN" or _is_border(node)) and node.name not in outputs
    }
    if not bypassed:
        return nodes, tuple(targets)

    def source(producer: Node, port: int) -> tuple[Node, int, list[Node]]:
        """Return the tensor behind a tensor, and the ops to wait for on the way to it."""
        waits: list[Node] = []
        while id(producer) in bypassed:
            waits += _staying(producer.controls, bypassed, Node.before)
            producer, port = producer.inputs[port]
        return producer, port, waits

    for node in nodes:
        if bypassed.isdisjoint([id(before) for before in node.before()]):
            continue
        found = [source(producer, port) for producer, port in node.inputs]
        waits = _staying(node.controls, bypassed, Node.before)
        waits += [wait for _, _, on_the_way in found for wait in on_the_way]
        node.inputs = [(producer, port) for producer, port, _ in found]
        needless = {id(producer) for producer, _ in node.inputs}
        node.controls = _distinct([wait for wait in waits if id(wait) not in needless])
    by_name = {node.name: node for node in nodes}
    kept: list[str] = []
    for target in targets:
        node = by_name[target]
        effects = _staying(node.controls, bypassed, Node.before)
        kept += sorted({e.name for e in effects}) if id(node) in bypassed else [target]
    return [node for node in nodes if id(node) not in bypassed], tuple(dict.fromkeys(kept))


def drop_unread_reads(nodes: Iterable[Node], outputs: Collection[str]) -> list[Node]:
    """Leave out reads of variables whose value nobody takes; what they waited for is kept.

    A tf.function keeps them, and lets later updates wait for them.
    """
    nodes = list(nodes)
    taken = {id(producer) for node in nodes for producer, _ in node.inputs}
    unread = {
        id(node)
        for node in nodes
        if node.kind == "ReadVariableOp" and id(node) not in taken and node.name not in outputs
    }

    for node in nodes:
        if node.controls and any(id(before) in unread for before in node.controls):
            node.controls = _distinct(_staying(node.controls, unread, lambda gone: gone.controls))
    return [node for node in nodes if id(node) not in unread]


def _staying(
    nodes: Iterable[Node], gone: Container[int], before: Callable[[Node], Iterable[Node]]
) -> list[Node]:
    """Return the nodes that stay, and in place of those that go what stays of what is before."""
    found: list[Node] = []
    for node in nodes:
        found += _staying(before(node), gone, before) if id(node) in gone else [node]
    return found


def _without_unread_barriers(nodes: list[Node], keep: Collection[str]) -> list[Node]:
    if not any(node.kind == "NoOp" for node in nodes):
        return nodes
    read = {id(before) for node in nodes for before in node.controls}
    return [n for n in nodes if n.kind != "NoOp" or id(n) in read or n.name in keep]


def _is_border(node: Node) -> bool:
    return node.kind == "Identity" and node.name.startswith("Func/")


def _is_idle(node: Node) -> bool:
    return node.kind == "NoOp" and not node.controls


def _distinct(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes without repetition, by name: the order in a graph is an accident."""
    return sorted({id(node): node for node in nodes}.values(), key=lambda node: node.name)


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
            self._reads_alone(self._functions[function.name], place, is_loop=is_loop)
            for function in named_functions(node)
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
        for function in named_functions(node):
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


def _retype(argument: Any, held: Variable) -> None:
    argument.type = held.dtype.as_datatype_enum
    argument.ClearField("handle_data")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatStep:
    """A step as nodes that can be placed, and what is needed to run it.

    ``nodes`` are all of them, ``ops`` those with each v1 loop as one, producers first; ``loops``
    says what these stand for, ``loop_bodies`` and ``trips`` what they do and how often.
    ``outputs`` are tensors, ``targets`` ops that must run. ``state`` goes by the names that its
    owner gives it. ``functions`` are the bodies of loops and conditionals, ``traced`` what they
    were traced as. ``summaries`` says how many ops that write summaries were left out.
    """

    ops: list[Node]
    nodes: list[Node]
    loops: dict[str, Loop]
    loop_bodies: dict[str, list[Node]]
    trips: dict[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    targets: tuple[str, ...]
    state: bundle.State
    functions: Mapping[str, Any]
    traced: Mapping[str, Any]
    summaries: int
    _names: Mapping[str, str]
    _source: Callable[[], Any]

    def specs(self) -> dict[tuple[str, int], TensorSpec]:
        """Return the spec of each tensor of the ops, by op and port."""
        return {
            (node.name, port): spec for node in self.ops for port, spec in enumerate(node.outputs)
        }

    def bundle(self, batches: tuple[tuple[Any, ...], ...]) -> Bundle:
        """Return the step with the values of its state, ready to be run by anyone."""
        return Bundle(
            graph_def=self.graph_def(),
            inputs=self.inputs,
            outputs=self.outputs,
            targets=self.targets,
            variables={name: held.value() for name, held in self.state.variables.items()},
            tables={name: held.content() for name, held in self.state.tables.items()},
            loops=self.loops,
            batches=batches,
        )

    def python_call(self) -> tuple[str, str] | None:
        """Return kind and name of the first op that calls Python, those within loops last.

        None if there is none.
        """
        ops = [(node.kind, node.name) for node in self.nodes]
        for function in self.functions.values():
            ops += [(node.op, node.name) for node in function.node_def]
        return next((op for op in ops if op[0] in PYTHON_CALLS), None)

    def graph_def(self) -> Any:
        """Return the nodes as a GraphDef."""
        given = self._source()
        written = tf.compat.v1.GraphDef(versions=given.versions, library=given.library)
        nodes = {node.name: node for node in self.nodes}
        for proto in given.node:
            name = self._names.get(proto.name, proto.name)
            node = nodes.get(name)
            if node is None:
                continue
            added = written.node.add()
            added.CopyFrom(proto)
            added.name = name
            added.attr.pop("_class", None)
            if name != proto.name and "shared_name" in added.attr:
                added.attr["shared_name"].s = name.encode()
            if node.kind.startswith("LookupTableFind"):
                # The shape follows from Python's table object, not from the graph alone.
                _write_shape(added, node.outputs[0])
            del added.input[:]
            added.input.extend(f"{p.name}:{port}" if port else p.name for p, port in node.inputs)
            added.input.extend(f"^{before.name}" for before in node.controls)
        return written


def flatten(function: Any, labels: Mapping[int, str]) -> FlatStep:
    """Return the flat step of a concrete function; ``labels`` names variables by their handle.

    Raises:
        ModelError: the step holds something that cannot be placed.
    """
    graph = function.graph
    captured = {inner.op.name: outer for outer, inner in graph.captures}
    inputs = {t.op.name: t.shape for t in function.inputs if t.op.name not in captured}
    outputs = tuple(t.name for t in function.outputs if t is not None)
    returned = {name.split(":")[0] for name in outputs}

    @cache
    def traced_graph_def() -> Any:
        graph_def = strip_functions(graph.as_graph_def())
        for node in graph_def.node:
            if node.name in inputs:
                node.attr["shape"].shape.CopyFrom(inputs[node.name].as_proto())
        return graph_def

    operations = graph.get_operations()
    nodes = read(operations)
    summaries = find_summaries(nodes)
    targets = tuple(op.name for op in graph.control_outputs if op.name not in summaries)
    captured = {name: outer for name, outer in captured.items() if name not in summaries}
    state = bundle.find_state(captured, labels, traced_graph_def)
    has_functions = bool(graph._functions)
    functions = (
        {f.signature.name: f for f in traced_graph_def().library.function} if has_functions else {}
    )

    @cache
    def flat_graph_def() -> Any:
        graph_def = traced_graph_def()
        state.write(graph_def)
        return graph_def

    graph_def: Callable[[], Any] = flat_graph_def
    has_calls = graph_has_calls({node.kind for node in nodes}, functions)
    if has_calls or takes_handles(nodes, state.variables):
        flat = flat_graph_def()
        if has_calls:
            keep = {*inputs, *captured, *returned, *targets}
            flat = inline(flat, keep, tag=LAYER_ATTRIBUTE)
        flat = give_values(flat, state.variables, tag=LAYER_ATTRIBUTE)
        functions = {f.signature.name: f for f in flat.library.function}
        nodes = _read_imported(flat, {node.name: node.outputs for node in nodes})
        graph_def = lambda: flat  # noqa: E731 - the same as a def, shorter
    state.apply(nodes)

    names = bundle.state_names(labels, captured, {node.name for node in nodes})
    for node in nodes:
        node.name = names.get(node.name, node.name)
    nodes, targets = _rewritten(without_nodes(nodes, summaries), inputs, returned, targets)
    step = folded(nodes)
    return FlatStep(
        ops=step.nodes,
        nodes=nodes,
        loops=step.loops,
        loop_bodies=step.bodies,
        trips=step.trips,
        inputs=tuple(inputs),
        outputs=outputs,
        targets=targets,
        state=state.renamed(names).only({node.name for node in nodes}),
        functions=functions,
        traced=graph._functions,
        summaries=len(summaries),
        _names=names,
        _source=graph_def,
    )


def _rewritten(
    nodes: list[Node], inputs: Collection[str], returned: Collection[str], targets: Sequence[str]
) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes that the step needs, free to be placed, and the targets among them.

    Raises:
        ModelError: the step returns nothing and changes nothing.
    """
    lift_control_inputs_of_constants(nodes, frames(nodes))
    nodes = drop_barriers(nodes, returned, set(targets))
    nodes, targets = bypass_identities(nodes, returned, targets)
    # Reads are among the targets; whoever needs one has it as an input.
    acting = {node.name for node in nodes if node.kind != "ReadVariableOp"}
    targets = tuple(target for target in targets if target in acting)
    if not {*returned, *targets}:
        raise ModelError("the step returns nothing and changes nothing")
    ends = {*returned, *targets, *inputs}
    nodes = needed(nodes, ends)
    read = drop_unread_reads(nodes, returned)
    return (read if len(read) == len(nodes) else needed(read, ends)), targets


def _read_imported(graph_def: Any, traced: Mapping[str, tuple[TensorSpec, ...]]) -> list[Node]:
    """Return the nodes of a graph that was inlined; what shapes the trace knew are kept."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    nodes = read(graph.get_operations())
    for node in nodes:
        known = traced.get(node.name, ())
        if len(known) == len(node.outputs):
            node.outputs = tuple(
                before if now.shape is None else now
                for now, before in zip(node.outputs, known, strict=True)
            )
    return nodes


def _write_shape(proto: Any, spec: TensorSpec) -> None:
    if spec.shape is not None and "_output_shapes" not in proto.attr:
        shape = tf.TensorShape(spec.shape).as_proto()
        proto.attr["_output_shapes"].list.shape.add().CopyFrom(shape)
