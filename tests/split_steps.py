"""Steps by hand at several batch sizes, as two traces of them would be."""

from __future__ import annotations

from placement_advisor.candidates.batch_split.plan import plan_split
from placement_advisor.candidates.batch_split.split_graph import Merge, SplitTraces, Wiring
from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role, WorkBasis
from placement_advisor.graph.op_graph import OpGraph


def op(name: str, size: int | None, *, kind: str = "MatMul", role: Role = Role.FORWARD) -> Op:
    return Op(name=name, kind=kind, role=role, output_bytes=(size,))


def training(samples: int) -> OpGraph:
    """Return a linear layer with a mean loss: 8 bytes a sample, 16 bytes of weights.

    >>> [op.name for op in training(1).ops]  # doctest: +NORMALIZE_WHITESPACE
    ['x', 'weights', 'read', 'rate', 'product', 'loss', 'gradient', 'update']
    """
    ops = [
        op("x", 8 * samples, kind="Placeholder", role=Role.INPUT),
        Op(
            name="weights",
            kind="VarHandleOp",
            role=Role.VARIABLE,
            variable="weights",
            output_bytes=(0,),
            parameter_bytes=16,
        ),
        op("read", 16, kind="ReadVariableOp")._replace(variable="weights"),
        op("rate", 4, kind="Const", role=Role.CONSTANT),
        op("product", 8 * samples),
        op("loss", 4, kind="Mean"),
        op("gradient", 16, role=Role.BACKWARD),
        op("update", None, kind="ResourceApplyGradientDescent", role=Role.UPDATE)._replace(
            variable="weights", output_bytes=()
        ),
    ]
    reads = {
        "read": ["weights"],
        "product": ["x", "read"],
        "loss": ["product"],
        "gradient": ["x", "product"],
        "update": ["weights", "rate", "gradient"],
    }
    return wired(ops, reads)


def two_updates(samples: int) -> OpGraph:
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


def wired(
    ops: list[Op], reads: dict[str, list[str]], controls: tuple[tuple[str, str], ...] = ()
) -> OpGraph:
    """Return a graph of ops that each read the first tensor of others, or only wait for them.

    All have kernels for GPUs.
    """
    ops = [each._replace(device_kinds=frozenset({"CPU", "GPU"})) for each in ops]
    size = {each.name: each.output_bytes[0] if each.output_bytes else 0 for each in ops}
    edges = [Edge(first, then, 0, size[first]) for then in reads for first in reads[then]]
    edges += [Edge(first, then, CONTROL_PORT, 0) for first, then in controls]
    return OpGraph(ops, edges)


def wiring_of_training(*shares: int) -> Wiring:
    """Return how the linear layer is split, its loss and gradient merged as means."""
    plan = plan_split(training(sum(shares)), training(shares[0]), [("loss", 0)])
    return Wiring(
        plan=plan,
        shares=shares,
        merges=dict.fromkeys(plan.merged, Merge.MEAN),
        axes=dict.fromkeys(plan.divided, 0),
    )


def split_training() -> SplitTraces:
    """Return the traces of `training` on four samples, shared by two."""
    return SplitTraces(
        whole=training(4),
        shares={2: training(2)},
        wiring=wiring_of_training(2, 2),
        outputs=(("loss", 0),),
        targets=("update",),
    )


def split_updates() -> SplitTraces:
    """Return those of `two_updates`."""
    whole, share = two_updates(4), two_updates(2)
    plan = plan_split(whole, share, [("loss", 0)])
    wiring = Wiring(
        plan=plan,
        shares=(2, 2),
        merges=dict.fromkeys(plan.merged, Merge.MEAN),
        axes=dict.fromkeys(plan.divided, 0),
    )
    return SplitTraces(
        whole=whole,
        shares={2: share},
        wiring=wiring,
        outputs=(("loss", 0),),
        targets=("update", "update 2"),
    )


def two_towers(samples: int, work: int = 10**9) -> OpGraph:
    """Return a step of two layers that a third joins, with ``work`` flops a sample in each."""
    whole: dict[str, Op] = {}
    reads: dict[str, list[str]] = {}

    def add(each: Op, *producers: str) -> None:
        basis = WorkBasis.FORMULA if each.flops else None
        whole[each.name], reads[each.name] = each._replace(work_basis=basis), list(producers)

    def matrix(layer: str, size: int, *inputs: str) -> str:
        name = f"{layer}/weights"
        variable = op(name, 0, kind="VarHandleOp", role=Role.VARIABLE)
        add(variable._replace(variable=name, parameter_bytes=size, layer=layer))
        read = op(f"{layer}/read", size, kind="ReadVariableOp")
        add(read._replace(variable=name, layer=layer), name)
        product = op(f"{layer}/product", 64 * samples)._replace(layer=layer, flops=work * samples)
        add(product, *inputs, f"{layer}/read")
        return product.name

    def update(layer: str, size: int, *inputs: str) -> None:
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


def split_towers(hosts: int = 2, samples: int = 4) -> SplitTraces:
    """Return the traces of `two_towers`, with so many samples for each of some hosts."""
    whole, share = two_towers(samples * hosts), two_towers(samples)
    plan = plan_split(whole, share, [("loss", 0)])
    wiring = Wiring(
        plan=plan,
        shares=(samples,) * hosts,
        merges=dict.fromkeys(plan.merged, Merge.MEAN),
        axes=dict.fromkeys(plan.divided, 0),
    )
    return SplitTraces(
        whole=whole,
        shares={samples: share},
        wiring=wiring,
        outputs=(("loss", 0),),
        targets=("left/update", "right/update", "head/update"),
    )
