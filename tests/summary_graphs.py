"""A training step by hand that has something of everything a summary tells."""

from placed_steps import edge

from placement_advisor.graph.op import CONTROL_PORT, Edge, Op, Role
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.tf.answers import Traced

BOTH = frozenset({"CPU", "GPU"})
HOST = frozenset({"CPU"})


def op(name, kind, role=Role.FORWARD, **fields):
    return Op(**{"name": name, "kind": kind, "role": role, "device_kinds": BOTH, **fields})


def training_step():
    """A lookup and a dense layer of 4 × 2, a loop of unknown work, a gradient, an update."""
    ops = [
        op("words", "Placeholder", Role.INPUT, output_bytes=(64,)),
        op("table", "HashTableV2", Role.VARIABLE, device_kinds=HOST, output_bytes=(0,)),
        op("two", "Const", Role.CONSTANT, output_bytes=(4,)),
        op("w", "VarHandleOp", Role.VARIABLE, variable="w", parameter_bytes=32, output_bytes=(0,)),
        op("m", "VarHandleOp", Role.VARIABLE, variable="m", parameter_bytes=32, output_bytes=(0,)),
        op(
            "ids", "LookupTableFindV2", layer="ids", variable="table", device_kinds=HOST,
            flops=0, bytes_accessed=128, output_bytes=(16,),
        ),
        op("size", "LookupTableSizeV2", layer="ids", variable="table", flops=0, bytes_accessed=0),
        op("flat", "Reshape", layer="ids", flops=0, bytes_accessed=0, output_bytes=(16,)),
        op(
            "read", "ReadVariableOp", layer="dense", variable="w",
            flops=0, bytes_accessed=0, output_bytes=(32,),
        ),
        op("dense", "MatMul", layer="dense", flops=300, bytes_accessed=56, output_bytes=(8,)),
        op("loop", "While", layer="loop", trips=None, output_bytes=(None,)),
        op(
            "grad", "MatMul", Role.BACKWARD, layer="dense",
            flops=100, bytes_accessed=56, output_bytes=(32,),
        ),
        op(
            "step", "ResourceApplyMomentum", Role.UPDATE, layer="dense", variable="w",
            flops=16, bytes_accessed=160,
        ),
    ]  # fmt: skip
    told = (
        "words ids 64; table ids 0; table size 0; ids flat 16; two flat 4; w read 0; "
        "read dense 32; flat dense 16; dense loop 8; loop grad ?; flat grad 16; read grad 32; "
        "grad step 32; w step 0; m step 0"
    )
    edges = [
        edge(producer, consumer, None if size == "?" else int(size))
        for producer, consumer, size in map(str.split, told.split("; "))
    ]
    edges.append(Edge("grad", "step", CONTROL_PORT, 0))
    return OpGraph(ops, edges)


def traced_as_tiny(graph):
    """Return a trace that made this graph."""
    return Traced(
        graph=graph,
        name="tiny",
        mode="train",
        chosen="model (compiled Functional), batches from `dataset`",
        batch_size=4,
        tensorflow_version="2.21.0",
        members={},
    )
