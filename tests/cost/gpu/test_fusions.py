"""What Grappler fuses on a GPU by default: by hand from its source."""

import pytest
from placed_steps import control, edge

from placement_advisor.cost.roofline import fused_into_convolutions, roofline_by_place
from placement_advisor.graph.op import Kernel, KernelFamily, Op
from placement_advisor.graph.op_graph import OpGraph
from placement_advisor.machine.presets import read_hardware


def convolution(*, filter_size=(3, 3)):
    dims = (8, 16, 16, *filter_size, 32, 32, 32, 32, 1)
    return Op(name="conv", kind="Conv2D", kernel=Kernel(KernelFamily.CONV, dims))


def layer(conv, *more, activation="Relu"):
    ops = [
        conv,
        Op(name="bias", kind="BiasAdd", bytes_accessed=10**6),
        Op(name="act", kind=activation, bytes_accessed=10**6),
        Op(name="next", kind="MaxPool"),
    ]
    edges = [edge("conv", "bias", 4), edge("bias", "act", 4), edge("act", "next", 4)]
    return OpGraph(ops, [*edges, *more])


def test_a_convolution_takes_its_bias_and_relu_along_and_only_on_gpus():
    graph = layer(convolution())
    assert fused_into_convolutions(graph) == {"bias", "act"}
    costs = roofline_by_place(graph, read_hardware("V100"))
    assert [costs["GPU:0"].time_ns(name) for name in ("bias", "act")] == [0, 0]
    assert min(costs["CPU:0"].time_ns(name) for name in ("bias", "act")) > 0


@pytest.mark.parametrize(
    "graph",
    [
        layer(convolution(filter_size=(1, 1))),
        layer(convolution(filter_size=(1, 3))),
        layer(convolution(), activation="Tanh"),
        layer(convolution(), edge("bias", "next", 4)),
        layer(convolution(), edge("conv", "next", 4)),
        layer(convolution(), control("act", "next")),
        layer(Op(name="conv", kind="Conv2D")),
    ],
    ids=["1x1", "1x3", "tanh", "bias read twice", "conv read twice", "ordered", "no float32"],
)
def test_nothing_else_is_fused(graph):
    assert fused_into_convolutions(graph) == frozenset()
