"""Steps by hand at several batch sizes, as two traces of them would be."""

from placed_steps import op

from placement_advisor.candidates.batch_split.plan import plan_split
from placement_advisor.candidates.batch_split.split_graph import Merge, SplitTraces, Wiring
from placement_advisor.graph.op import CONTROL_PORT, Edge, Role, WorkBasis
from placement_advisor.graph.op_graph import OpGraph


def training(samples):
    """Return a linear layer with a mean loss: 8 bytes a sample, 16 bytes of weights."""
    return step(
        samples,
        "x 8n Placeholder input; weights 16 VarHandleOp variable weights; "
        "read 16 ReadVariableOp - weights < weights; rate 4 Const constant; product 8n < x read; "
        "loss 4 Mean < product; gradient 16 MatMul backward < x product; "
        "update - ResourceApplyGradientDescent update weights < weights rate gradient",
    )


def two_updates(samples):
    """Return a step that updates its layer, then computes with it anew and updates another one."""
    first = training(samples)
    second = [
        each._replace(name=f"{each.name} 2", variable=each.variable and f"{each.variable} 2")
        for each in first.ops
        if each.name in {"weights", "read", "product", "gradient", "update"}
    ]
    again = first.op("read")._replace(name="read again")
    reads = {
        "read 2": ["weights 2"],
        "read again": ["weights"],
        "product 2": ["x", "read again", "read 2"],
        "gradient 2": ["x", "product 2"],
        "update 2": ["weights 2", "rate", "gradient 2"],
    }
    more = wired([*first.ops, *second, again], reads, (("update", "read again"),))
    return OpGraph(more.ops, [*first.edges, *more.edges])


def wired(ops, reads, controls=()):
    """Return a graph of ops that each read the first tensor of others, or only wait for them.

    All have kernels for GPUs.
    """
    ops = [each._replace(device_kinds=frozenset({"CPU", "GPU"})) for each in ops]
    size = {each.name: each.output_bytes[0] if each.output_bytes else 0 for each in ops}
    edges = [Edge(first, then, 0, size[first]) for then in reads for first in reads[then]]
    edges += [Edge(first, then, CONTROL_PORT, 0) for first, then in controls]
    return OpGraph(ops, edges)


def step(samples, text, controls=()):
    """Return a step of ops that semicolons part: `name bytes kind role variable < what it reads`.

    `8n` are bytes for each sample, `?` unknown, those of a VarHandleOp its value's. A - stands for
    no output, and for a kind, role or variable that does not matter.
    """
    ops, reads = [], {}
    for each in text.split("; "):
        words, _, read = each.partition(" < ")
        name, size, kind, role, variable = (*words.split(), *"---")[:5]
        known = None if size in "?-" else int(size.rstrip("n")) * (samples if "n" in size else 1)
        made = op(name, known, kind=kind, role=Role.FORWARD if role == "-" else Role(role))
        made = made._replace(variable=None if variable == "-" else variable)
        if size == "-":
            made = made._replace(output_bytes=())
        if kind == "VarHandleOp":
            made = made._replace(output_bytes=(0,), parameter_bytes=known)
        ops.append(made)
        reads[name] = read.split()
    return wired(ops, reads, controls)


def split_traces(at, shares, outputs=(("loss", 0),), targets=(), merge=Merge.MEAN, **merges):
    """Return the traces of a step, made ``at`` some samples, whose tensors are all merged so.

    ``merges`` has other ways, by op.
    """
    whole, graphs = at(sum(shares)), {share: at(share) for share in shares}
    plan = plan_split(whole, graphs[shares[0]], outputs)
    wiring = Wiring(
        plan=plan,
        shares=shares,
        merges={tensor: merges.get(tensor[0], merge) for tensor in plan.merged},
        axes=dict.fromkeys((*plan.merged, *plan.divided), 0),
    )
    given = tuple(outputs)
    return SplitTraces(whole=whole, shares=graphs, wiring=wiring, outputs=given, targets=targets)


def split_training(*shares, **merges):
    """Return the traces of `training`, shared by two with two samples each if not said."""
    return split_traces(training, shares or (2, 2), targets=("update",), **merges)


def split_updates():
    """Return those of `two_updates`."""
    return split_traces(two_updates, (2, 2), targets=("update", "update 2"))


def two_towers(samples, work=10**9):
    """Return a step of two layers that a third joins, with ``work`` flops a sample in each."""
    whole = {}
    reads = {}

    def add(each, *producers):
        basis = WorkBasis.FORMULA if each.flops else None
        whole[each.name], reads[each.name] = each._replace(work_basis=basis), list(producers)

    def matrix(layer, size, *inputs):
        name = f"{layer}/weights"
        variable = op(name, 0, kind="VarHandleOp", role=Role.VARIABLE)
        add(variable._replace(variable=name, parameter_bytes=size, layer=layer))
        read = op(f"{layer}/read", size, kind="ReadVariableOp")
        add(read._replace(variable=name, layer=layer), name)
        product = op(f"{layer}/product", 64 * samples)._replace(layer=layer, flops=work * samples)
        add(product, *inputs, f"{layer}/read")
        return product.name

    def update(layer, size, *inputs):
        name = f"{layer}/weights"
        gradient = op(f"{layer}/gradient", size, role=Role.BACKWARD)
        add(gradient._replace(layer=layer, flops=2 * work * samples), *inputs)
        last = op(f"{layer}/update", None, kind="ResourceApplyGradientDescent", role=Role.UPDATE)
        last = last._replace(variable=name, layer=layer, output_bytes=())
        add(last, name, "rate", gradient.name)

    add(op("rate", 4, kind="Const", role=Role.CONSTANT))
    sizes = {"left": 4_000_000, "right": 2_000_000}
    for side in sizes:
        add(op(f"{side}/x", 64 * samples, kind="Placeholder", role=Role.INPUT))
    ends = [matrix(side, size, f"{side}/x") for side, size in sizes.items()]
    add(op("join", 128 * samples, kind="ConcatV2")._replace(layer="join"), *ends)
    matrix("head", 1_000, "join")
    add(op("loss", 4, kind="Mean")._replace(layer="loss"), "head/product")
    back = op("loss/back", 64 * samples, role=Role.BACKWARD)._replace(layer="loss")
    add(back, "loss", "head/product")
    update("head", 1_000, "join", "loss/back")
    joined = op("join/back", 64 * samples, role=Role.BACKWARD)._replace(layer="join")
    add(joined, "loss/back", "head/read")
    for side, size in sizes.items():
        update(side, size, f"{side}/x", "join/back")
    return wired(list(whole.values()), reads)


def split_towers(hosts=2, samples=4):
    """Return the traces of `two_towers`, with so many samples for each of some hosts."""
    updates = ("left/update", "right/update", "head/update")
    return split_traces(two_towers, (samples,) * hosts, targets=updates)
