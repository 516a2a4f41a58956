"""Ways in which a placed or split step can be wrong, as edits of the graph that would run.

Each is what a placer, a splitter or a runtime with a mistake in it would run. An edit takes the
GraphDef and the variable that it is about, and returns nothing: the graph is changed. What it
cannot do to a variable (swap it where no other has its shape) it says with `LookupError`.
"""

import re
from contextlib import suppress

import tensorflow as tf

SCALE = 1.02
_ASSIGNMENTS = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_MERGED = re.compile(r"^replicas/.*/merged$")
_GENERATORS = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")


class Graph:
    def __init__(self, graph_def):
        self.graph_def = graph_def
        self.nodes = {node.name: node for node in graph_def.node}

    def updates(self, variable):
        """Return the ops that change a variable; the first input of each is a handle."""
        found = [
            node
            for node in self.nodes.values()
            if node.op.startswith(("Assign", "ResourceApply", "ResourceScatter", "ResourceSparse"))
            and node.input[0].partition(":")[0] == variable
        ]
        if not found:
            raise LookupError(f"nothing updates {variable}")
        return found

    def before(self, name):
        """Yield the ops that one needs as data, the nearest first."""
        seen, waiting = {name}, [name]
        while waiting:
            node = self.nodes[waiting.pop(0)]
            yield node
            for reference in node.input:
                producer = reference.partition(":")[0]
                if not reference.startswith("^") and producer not in seen:
                    seen.add(producer)
                    waiting.append(producer)

    def add(self, name, kind, inputs, like, **attributes):
        """Add an op on the device of another."""
        node = self.graph_def.node.add(name=name, op=kind, device=like.device)
        node.input.extend(inputs)
        for key, value in attributes.items():
            if key == "value":
                node.attr[key].tensor.CopyFrom(value)
            else:
                node.attr[key].type = value
        self.nodes[name] = node
        return node

    def constant(self, name, value, dtype, like):
        proto = tf.make_tensor_proto(value, dtype=tf.as_dtype(dtype))
        return self.add(name, "Const", [], like, dtype=dtype, value=proto).name

    def scale(self, node, place, dtype, factor):
        """Put a product between an op and one of its inputs."""
        name = f"{node.name}/broken_{place}"
        by = self.constant(f"{name}_by", factor, dtype, node)
        node.input[place] = self.add(name, "Mul", [node.input[place], by], node, T=dtype).name


def _delta(graph, node):
    """Return the op and input where what is added to a variable goes in, and its type."""
    if node.op == "AssignVariableOp":
        value = graph.nodes[node.input[1].partition(":")[0]]
        while value.op == "Identity":
            value = graph.nodes[value.input[0].partition(":")[0]]
        if value.op not in ("Sub", "AddV2"):
            raise LookupError(f"{node.name} assigns no sum")
        return value, 1, value.attr["T"].type
    if node.op in _ASSIGNMENTS:
        return node, 1, node.attr["dtype"].type
    if "Scatter" in node.op:
        return node, 2, node.attr["dtype"].type
    raise LookupError(f"what {node.op} is given is not known here")


def dropped(graph, variable, _):
    """No update of the variable runs."""
    for node in graph.updates(variable):
        node.op = "NoOp"
        controls = [f"^{reference.removeprefix('^').partition(':')[0]}" for reference in node.input]
        del node.input[:]
        node.input.extend(controls)
        node.attr.clear()


def doubled(graph, variable, _):
    """What is added to the variable is added twice."""
    node = graph.updates(variable)[-1]
    if node.op in ("AssignAddVariableOp", "AssignSubVariableOp"):
        again = graph.add(f"{node.name}/again", node.op, [], node)
        again.CopyFrom(node)
        again.name = f"{node.name}/again"
        node.input.append(f"^{again.name}")
        return
    graph.scale(*_delta(graph, node), 2.0)


def scaled(graph, variable, _):
    """What is added to the variable is a little too large."""
    graph.scale(*_delta(graph, graph.updates(variable)[-1]), SCALE)


def stale(graph, variable, _):
    """The variable gets the update of the step before; in the first step its own."""
    holder, place, _dtype = _delta(graph, graph.updates(variable)[-1])
    if "Scatter" in holder.op:
        raise LookupError("rows of the step before are other rows")
    name, reference = f"{holder.name}/last", holder.input[place]
    full = tf.Graph()
    with full.as_default():
        tf.graph_util.import_graph_def(graph.graph_def, name="")
        now = full.get_tensor_by_name(reference if ":" in reference else f"{reference}:0")
        with tf.device(holder.device):
            kept = tf.raw_ops.VarHandleOp(
                dtype=now.dtype, shape=now.shape, shared_name=name, name=name
            )
            old = tf.compat.v1.cond(
                tf.raw_ops.VarIsInitializedOp(resource=kept),
                lambda: tf.raw_ops.ReadVariableOp(resource=kept, dtype=now.dtype),
                lambda: tf.identity(now),
            )
            with tf.control_dependencies([old]):
                keep = tf.raw_ops.AssignVariableOp(resource=kept, value=now)
            with tf.control_dependencies([keep]):
                given = tf.identity(old, name=f"{name}/given")
    written = full.as_graph_def()
    for node in written.node:
        if node.name == holder.name:
            node.input[place] = given.op.name
    graph.graph_def.CopyFrom(written)


def _is_assigned(graph, variable):
    return {node.op for node in graph.updates(variable)} <= set(_ASSIGNMENTS)


def swapped(graph, variable, draw):
    """The updates of two variables of one shape go to each other."""
    shape, dtype = (graph.nodes[variable].attr[key] for key in ("shape", "dtype"))
    others = []
    for node in graph.nodes.values():
        alike = node.op == "VarHandleOp" and node.name != variable
        if alike and node.attr["shape"] == shape and node.attr["dtype"] == dtype:
            with suppress(LookupError):
                others += [node.name] if _is_assigned(graph, node.name) else []
    if not others or not _is_assigned(graph, variable):
        raise LookupError(f"no other variable has the shape of {variable}")
    other = draw.choice(sorted(others))
    one, two = graph.updates(variable)[-1], graph.updates(other)[-1]
    # The values change places, so that each op stays on its variable's device.
    one.input[1], two.input[1] = two.input[1], one.input[1]
    one.op, two.op = two.op, one.op


def reseeded(graph, _, draw):
    """An op that draws random numbers draws others."""
    drawing = [
        node
        for node in graph.nodes.values()
        if node.op in _GENERATORS
        or (node.op.startswith("StatelessRandom") and "Key" not in node.op and len(node.input) > 1)
    ]
    if not drawing:
        raise LookupError("nothing draws random numbers")
    node = draw.choice(drawing)
    if node.op in _GENERATORS:
        node.attr["seed2"].i += 77
        return
    kind = tf.uint64.as_datatype_enum
    number = graph.constant(f"{node.name}/other", [77], kind, node)
    graph.add(f"{node.name}/reseeded", "BitwiseXor", [node.input[1], number], node, T=kind)
    node.input[1] = f"{node.name}/reseeded"


def one_replica(graph, variable, _):
    """The variable gets the gradient of the first replica alone."""
    _first_only(_merges_of(graph, variable)[0])


def not_exchanged(graph, variable, _):
    """No gradient of the second replica gets anywhere."""
    _merges_of(graph, variable)
    for node in graph.nodes.values():
        if _merges_gradients(node):
            _first_only(node)


def averaged_twice(graph, variable, _):
    """The mean of the gradients is divided by the number of replicas once more."""
    merged = _merges_of(graph, variable)[0]
    for place in range(merged.attr["N"].i):
        graph.scale(merged, place, merged.attr["T"].type, 1 / merged.attr["N"].i)


def share_lost(graph, variable, _):
    """What the second replica computes for the variable counts for nothing."""
    merged = _merges_of(graph, variable)[0]
    graph.scale(merged, 1, merged.attr["T"].type, 0.0)


def merged_early(graph, variable, _):
    """A gradient that is a product in each replica is made of means, not the mean of products."""
    merged = _merges_of(graph, variable)[0]
    weighted = [graph.nodes[reference] for reference in merged.input]
    products = [graph.nodes[each.input[0]] for each in weighted if each.op == "Mul"]
    if len(products) < 2 or any(each.op != "Mul" for each in products):
        raise LookupError(f"the gradient of {variable} is no mean of products")
    dtype = merged.attr["T"].type
    for place in range(2):
        factors = [product.input[place] for product in products]
        if factors[0] == factors[1]:
            continue
        parts = []
        for product, factor, each in zip(products, factors, weighted, strict=True):
            parts.append(f"{product.name}/early_{place}")
            graph.add(parts[-1], "Mul", [factor, each.input[1]], each, T=dtype)
        mean = graph.add(f"{merged.name}/early_{place}", "AddN", parts, merged, T=dtype)
        mean.attr["N"].i = len(parts)
        for product in products:
            product.input[place] = mean.name


def _merges_gradients(node):
    return _MERGED.match(node.name) and "gradient" in node.name


def _merges_of(graph, variable):
    """Return what puts the replicas' gradients of a variable together, the nearest first."""
    for update in reversed(graph.updates(variable)):
        merges = filter(_merges_gradients, graph.before(update.name))
        found = [node for node in merges if tf.as_dtype(node.attr["T"].type).is_floating]
        if found:
            return found
    raise LookupError(f"no gradients of replicas are put together for {variable}")


def _first_only(merged):
    for place in range(1, merged.attr["N"].i):
        merged.input[place] = merged.input[0]


PLACED = {each.__name__: each for each in (dropped, doubled, scaled, stale, swapped, reseeded)}
SPLIT = {
    each.__name__: each
    for each in (one_replica, not_exchanged, averaged_twice, share_lost, merged_early)
}


def reordered(graph, _, draw):
    """Add numbers up in another order: what no comparison may take for a mistake."""
    for node in graph.nodes.values():
        if node.op in ("AddN", "AddV2", "Mul") and draw.random() < 0.5:
            data = [reference for reference in node.input if not reference.startswith("^")]
            node.input[: len(data)] = reversed(data)
