"""Op graphs for tests: by hand, drawn, and as large as models get."""

import random
from itertools import pairwise

from hypothesis import strategies as st

from placement_advisor.graph.op import CONTROL_PORT, Edge, Kernel, KernelFamily, Op, Role, WorkBasis
from placement_advisor.graph.op_graph import OpGraph

_OPTIONAL = st.one_of(st.none(), st.integers(0, 10**9))


def op(name, layer=None):
    return Op(name, "MatMul", layer=layer, output_bytes=(8,))


def edge(producer, consumer, *, port=0, size_bytes=8):
    return Edge(producer, consumer, port, size_bytes)


def sized(ops, edges):
    """Return a graph whose edges have the sizes that their producers list."""
    ops = tuple(ops)
    outputs = {each.name: each.output_bytes for each in ops}
    return OpGraph(
        ops,
        [
            each
            if each.is_control or each.port >= len(outputs[each.producer])
            else each._replace(size_bytes=outputs[each.producer][each.port])
            for each in edges
        ],
    )


def chain(*names):
    """Return ops that each read the one before."""
    return OpGraph([op(name) for name in names], [edge(*ends) for ends in pairwise(names)])


def graph_of(text):
    """Return a graph of ops that semicolons part: `name kind role layer variable < what it reads`.

    Without a role an op is of the forward pass; - stands for no layer and no variable.
    """
    ops, edges = [], []
    for each in text.split("; "):
        words, _, read = each.partition(" < ")
        name, kind, role, layer, variable = (*words.split(), *"---")[:5]
        role = Role.FORWARD if role == "-" else Role(role)
        held = (None if word == "-" else word for word in (layer, variable))
        ops.append(Op(name, kind, role, *held))
        edges += [Edge(producer, name, 0, 4) for producer in read.split()]
    return OpGraph(ops, edges)


def called(graph, names, layer):
    """Return the ops and edges of a graph under other names; ``layer`` renames a layer."""
    ops = [
        each._replace(
            name=names[each.name],
            layer=each.layer and layer(each.layer),
            variable=each.variable and names.get(each.variable, each.variable),
        )
        for each in graph.ops
    ]
    return ops, [
        each._replace(producer=names[each.producer], consumer=names[each.consumer])
        for each in graph.edges
    ]


_OPS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["MatMul", "Relu"]),
        "role": st.sampled_from(Role),
        "layer": st.one_of(st.none(), st.sampled_from("ab"), st.text(max_size=3)),
        "output_bytes": st.sampled_from([(), (8,), (None,), (0, 2**40)]),
    },
    # Of an op without one of these the rest of the program knows nothing.
    optional={
        "variable": st.just("v"),
        "flops": _OPTIONAL,
        "bytes_accessed": _OPTIONAL,
        "work_basis": st.sampled_from(WorkBasis),
        "trips": st.just(3),
        "parameter_bytes": st.integers(0, 100),
        "device_kinds": st.sampled_from([frozenset(), frozenset({"CPU", "GPU"})]),
        "kernel": st.just(Kernel(KernelFamily.RELU, (1, 8))),
    },
)


@st.composite
def graphs(draw):
    """Draw a DAG with its ops given in any order."""
    ops = [
        Op(f"op{i}", host_outputs=tuple(range(len(content["output_bytes"]))), **content)
        for i, content in enumerate(draw(st.lists(_OPS, max_size=7)))
    ]
    last = max(0, len(ops) - 1)
    ends = draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, last)), max_size=14))
    edges = []
    for first, second in ends:
        if first < second:
            port = draw(st.integers(CONTROL_PORT, len(ops[first].output_bytes) - 1))
            size_bytes = ops[first].output_bytes[port] if port >= 0 else None
            edges.append(edge(ops[first].name, ops[second].name, port=port, size_bytes=size_bytes))
    return OpGraph(draw(st.permutations(ops)), draw(st.permutations(edges)))


def large(ops, edges, *, seed=7):
    """Return about so many ops and edges, in the given order, named and sized like a real step."""
    numbers = random.Random(seed)
    roles = [Role.CONSTANT, *[Role.FORWARD] * 3, *[Role.BACKWARD] * 3, *[Role.UPDATE] * 3]
    made = [
        Op(
            f"model/encoder/block_{i // 500}/attention/query/MatMul_{i}",
            f"Kind{numbers.randrange(90)}",
            numbers.choice(roles),
            layer=f"encoder/block_{i // 500}/attention/{i // 50 % 10}",
            flops=numbers.randrange(1 << 30),
            bytes_accessed=numbers.randrange(1 << 24),
            work_basis=WorkBasis.FORMULA,
            output_bytes=(numbers.randrange(1 << 24),),
            device_kinds=frozenset({"CPU", "GPU"}),
        )
        for i in range(ops)
    ]
    ends = {
        (max(0, consumer - 1 - numbers.randrange(2_000)), consumer)
        for consumer in (numbers.randrange(1, ops) for _ in range(edges))
    }
    return made, [
        edge(made[source].name, made[target].name, size_bytes=made[source].output_bytes[0])
        for source, target in sorted(ends)
    ]


# As foreign as names can be: what XML, DOT, Mermaid, terminals and UTF-8 take for something else.
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.text(
        st.sampled_from('"\\\n\r\t\0\x1b\x7f\x9b\u2028\ud800\uffff&;<>n0xé模🙂 #%_-`*.:/[]ﬂ°¶ß')
    ),
)


def as_python_writes(name):
    """Return what a name is called in GraphML, DOT and Mermaid."""
    return "".join(
        c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in name
    )
