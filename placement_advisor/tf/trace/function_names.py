"""Other names for the functions of a GraphDef: the bodies of loops and conditionals."""

from __future__ import annotations

from typing import Any


def suffix_functions(graph_def: Any, suffix: str) -> None:
    """Give each function of a graph, wherever it is named, a name that ends in ``suffix``."""
    own = {function.signature.name for function in graph_def.library.function}
    nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
    for node in nodes:
        if node.op in own:
            node.op += suffix
        for attribute in node.attr.values():
            for function in (attribute.func, *attribute.list.func):
                if function.name in own:
                    function.name += suffix
    for function in graph_def.library.function:
        function.signature.name += suffix
    for gradient in graph_def.library.gradient:
        gradient.function_name += suffix
        gradient.gradient_func += suffix
