"""Small graphs by hand, for children: ops as ``{name: (kind, inputs)}``, devices apart."""

import numpy as np
import tensorflow as tf
from hand_made_nodes import written

from placement_advisor.tf import placed_step
from placement_advisor.tf.trace.bundle import Bundle


def graph_def(ops, device_of=None):
    found = tf.compat.v1.GraphDef()
    for name, (kind, inputs) in ops.items():
        node = found.node.add()
        node.name, node.op = name, kind
        node.device = (device_of or {}).get(name, "")
        node.input.extend(inputs)
    return found


def placed_nodes(graph_def, device_of, inputs=()):
    """Return the nodes of a graph that is placed; ``inputs`` are names and shapes."""
    empty = {"outputs": (), "targets": (), "variables": {}, "tables": {}}
    batch = tuple(np.zeros(shape, np.float32) for _, shape in inputs)
    names = tuple(name for name, _ in inputs)
    bundle = Bundle(graph_def=graph_def, inputs=names, batches=(batch,), **empty)
    return placed_step.placed_graph(bundle, device_of, host="host").node


def placed(ops, device_of, inputs):
    """Return kind, inputs and device of each op of a placed text; ``inputs`` give shapes."""
    nodes = placed_nodes(graph_def(written(ops)), device_of, inputs.items())
    return {node.name: (node.op, list(node.input), node.device) for node in nodes}


def crossings(partitions, device_names, size_of):
    """Return what crosses in partition graphs; ops as (name, kind, inputs, attributes).

    The attribute ``client_terminated`` is true if it is there.
    """
    graphs = []
    for ops in partitions:
        found = graph_def({name: (kind, inputs) for name, kind, inputs, _ in ops})
        for node, (_, _, _, attributes) in zip(found.node, ops, strict=True):
            for key, value in attributes.items():
                if key == "client_terminated":
                    node.attr[key].b = True
                else:
                    node.attr[key].s = value.encode()
        graphs.append(found)
    return placed_step.crossings(graphs, device_names, size_of)


def moved(executed, planned):
    """Return the ops that stand elsewhere than planned, from devices by op."""
    graphs = [graph_def(dict.fromkeys(ops, ("NoOp", ())), ops) for ops in (executed, planned)]
    return placed_step.moved_ops(graphs[:1], graphs[1])
