"""Models by hand: layers of one op each, from a list of who reads what."""

from placement_advisor.graph.op import Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph


def model(*wires, kinds=None):
    """Return a forward pass from lines such as ``"a b -> c"``: c reads a and b.

    A name with ``in`` in front is an input; every other is a layer of one MatMul, unless
    ``kinds`` says otherwise.
    """
    ops = {}
    edges = []
    for wire in wires:
        sources, _, target = wire.partition("->")
        for name in [*sources.split(), target.strip()]:
            is_input = name.startswith("in")
            ops.setdefault(
                name,
                Op(
                    name,
                    "Placeholder" if is_input else (kinds or {}).get(name, "MatMul"),
                    Role.INPUT if is_input else Role.FORWARD,
                    layer=None if is_input else name,
                    flops=100,
                    output_bytes=(8,),
                ),
            )
        edges += [Edge(source, target.strip(), 0, 8) for source in sources.split()]
    return OpGraph(ops.values(), edges)
