"""Recurrent layers that are one op: cuDNN's stacks, and the block LSTM and GRU kernels.

A step of a layer multiplies its input and its state by one matrix per gate: LSTM has 4, GRU 3, a
plain layer 1. Beside that, each unit takes the gates' activations and a few products. The
gradient multiplies twice as much: once by the inputs, once by the weights. Weights count as read
once, although they are used at every time step. Sequences count at their full length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.graph.op_work.arithmetic import SIGMOID, TANH
from placement_advisor.graph.op_work.formula_parts import Formula, Rule, elements, moved, shape_of

if TYPE_CHECKING:
    from placement_advisor.graph.op_work.signature import Signature

# (gates, flops per unit and step beside the products)
_LSTM = (4, 3 * SIGMOID + 2 * TANH + 8)
_GRU = (3, 2 * SIGMOID + TANH + 8)
_CELLS: dict[str, tuple[int, int]] = {
    "lstm": _LSTM,
    "gru": _GRU,
    "rnn_relu": (1, 3),
    "rnn_tanh": (1, 2 + TANH),
}


def _cudnn(signature: Signature) -> int:
    """Count a stack of layers: (input [time, batch, features], state [layers, batch, units])."""
    gates, per_unit = _CELLS[signature.attribute("rnn_mode") or "lstm"]
    *steps, features = shape_of(signature.inputs[0])
    stacked, _, units = shape_of(signature.inputs[1])
    directions = 2 if signature.attribute("direction") == "bidirectional" else 1
    rows = steps[0] * steps[1]
    flops = 0
    for layer in range(stacked // directions):
        width = features if layer == 0 else directions * units
        flops += directions * rows * units * (2 * gates * (width + units) + per_unit)
    return flops


def _block_lstm(signature: Signature) -> int:
    """Count (length, x [time, batch, features], state, state, w [features + units, 4·units])."""
    time, batch, _ = shape_of(signature.inputs[1])
    return _lstm_steps(time * batch, shape_of(signature.inputs[4]))


def _lstm_cell(signature: Signature) -> int:
    """Count (x [batch, features], state, state, w [features + units, 4·units])."""
    return _lstm_steps(shape_of(signature.inputs[0])[0], shape_of(signature.inputs[3]))


def _lstm_steps(rows: int, weights: tuple[int, ...]) -> int:
    gates, per_unit = _LSTM
    inner, outer = weights
    return rows * (2 * inner * outer + per_unit * (outer // gates))


def _gru_cell(signature: Signature) -> int:
    """Count (x, state, w_ru [features + units, 2·units], w_c [features + units, units])."""
    batch = shape_of(signature.inputs[0])[0]
    units = shape_of(signature.inputs[3])[1]
    weights = elements(signature.inputs[2]) + elements(signature.inputs[3])
    return batch * (2 * weights + _GRU[1] * units)


def _gradient(forward: Rule) -> Rule:
    def rule(signature: Signature) -> int:
        return 2 * forward(signature)

    return rule


def _lstm_cell_gradient(signature: Signature) -> int:
    """Count the activations' gradients alone: the products are MatMuls of their own."""
    return _LSTM[1] * elements(signature.inputs[1])


_BLOCK = Formula(_block_lstm, moved)
_CUDNN = Formula(_cudnn, moved)
_CUDNN_GRADIENT = Formula(_gradient(_cudnn), moved)

FORMULAS: dict[str, Formula] = {
    "CudnnRNN": _CUDNN,
    "CudnnRNNV2": _CUDNN,
    "CudnnRNNV3": _CUDNN,
    "CudnnRNNBackprop": _CUDNN_GRADIENT,
    "CudnnRNNBackpropV2": _CUDNN_GRADIENT,
    "CudnnRNNBackpropV3": _CUDNN_GRADIENT,
    "BlockLSTM": _BLOCK,
    "BlockLSTMV2": _BLOCK,
    "BlockLSTMGrad": Formula(_gradient(_block_lstm), moved),
    "BlockLSTMGradV2": Formula(_gradient(_block_lstm), moved),
    "LSTMBlockCell": Formula(_lstm_cell, moved),
    "LSTMBlockCellGrad": Formula(_lstm_cell_gradient, moved),
    "GRUBlockCell": Formula(_gru_cell, moved),
    "GRUBlockCellGrad": Formula(_gradient(_gru_cell), moved),
}
