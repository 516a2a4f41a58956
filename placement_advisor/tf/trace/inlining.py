"""Opens calls of functions, with TensorFlow's own function optimizer.

Loops and conditionals stay single ops. Calls that are meant for XLA are opened as well: XLA would
ignore devices inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.grappler import tf_optimizer

from placement_advisor.graph.op import CALL_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INLINED_KINDS = CALL_KINDS | {"SymbolicGradient"}
# XLA would ignore devices inside a call, and the others keep a call from being inlined. Colocation
# names ops as they were before they were inlined and renamed; a placement keeps state together.
_CASES = ("Case", "StatelessCase")
_UNWANTED = ("_XlaMustCompile", "_noinline", "_XlaHasReferenceVars", "api_implements", "_class")


def has_calls(kinds: Iterable[str], functions: Iterable[str]) -> bool:
    """Return whether a graph of these kinds calls a function (TF1 calls one by its name)."""
    return not _INLINED_KINDS.union(functions).isdisjoint(kinds)


def is_for_xla(graph: Any) -> bool:
    """Return whether XLA is to compile functions that a traced graph calls."""
    mark = _UNWANTED[0]
    held = (function.cached_definition for function in graph._functions.values())
    return any(mark in found.attr and found.attr[mark].b for found in held)


def strip(graph_def: Any) -> Any:
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
