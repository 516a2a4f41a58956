"""What kernels do with the buffers of their inputs, by kind.

- An *alias* hands a buffer on. Some kinds do so only where they change nothing, which shows in
  equal sizes: a sum over axes of length 1, a slice of everything.
- A kernel that *reuses* writes its output over an input of the same size, if it is the last to
  hold that buffer (``OpKernelContext::forward_input``).
- A variable whose rows are gathered or updated through its handle is *read by copy* from then on
  (``EnsureSparseVariableAccess``), so that its rows can be updated in place. All others are read
  by sharing their buffer, and a dense update copies it first if a reader still holds it.

Left out: what depends on shapes or attributes that an op graph does not hold (slices and splits of
rows, which share their input's buffer; transpositions that move nothing).

Source: the CPU and GPU kernels of TensorFlow 2.21.
"""

from __future__ import annotations

from placement_advisor.graph.op import BRANCH_KINDS, CALL_KINDS, LOOP_KINDS
from placement_advisor.graph.op_work import elementwise
from placement_advisor.graph.op_work.movement import ALIAS_KINDS

# Loops, conditionals and calls put out what ops within them hold.
COMPOSITE_KINDS = LOOP_KINDS | BRANCH_KINDS | CALL_KINDS
_ALIASES = ALIAS_KINDS | {"Bitcast", "CheckNumerics", "CheckNumericsV2", "IdentityN"}
_ALIASES_IF_EQUAL = frozenset(
    [
        "All",
        "Any",
        "BroadcastTo",
        "EuclideanNorm",
        "Max",
        "Mean",
        "Min",
        "MirrorPad",
        "Pad",
        "PadV2",
        "Prod",
        "Slice",
        "StridedSlice",
        "Sum",
        "Tile",
    ]
)
# Elementwise kinds whose output has another type than their input, or that read inputs again.
_NEW_OUTPUT = frozenset({"BiasAddV1", "Betainc", "Complex", "ComplexAbs", "Imag", "Real"})
_REUSING = (
    elementwise.UNARY.keys() | elementwise.BINARY.keys() | elementwise.GRADIENT.keys()
).difference(_ALIASES, _NEW_OUTPUT) | frozenset(
    [
        "AccumulateNV2",
        "AddN",
        "ClipByValue",
        "FakeQuantWithMinMaxArgs",
        "FakeQuantWithMinMaxVars",
        "LogSoftmax",
        "MatrixBandPart",
        "MatrixDiagPart",
        "MatrixSetDiag",
        "MatrixSetDiagV2",
        "MatrixSetDiagV3",
        "OnesLike",
        "Select",
        "SelectV2",
        "Softmax",
        "TensorScatterAdd",
        "TensorScatterMax",
        "TensorScatterMin",
        "TensorScatterSub",
        "TensorScatterUpdate",
        "ZerosLike",
    ]
)
# The gradient that a loss puts out on its second port may lie where the logits lay.
_REUSING_SECOND = frozenset(
    {"SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"}
)
_BY_ROWS = ("ResourceGather", "ResourceScatter", "ResourceSparseApply", "ResourceStridedSlice")
ASSIGNMENT = "AssignVariableOp"
_DENSE_UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApply")


def is_alias(kind: str, port: int) -> bool:
    """Return whether the output at ``port`` is an input handed on, if there is one of its size."""
    return kind in _ALIASES or (kind in _ALIASES_IF_EQUAL and port == 0)


def may_reuse(kind: str, port: int) -> bool:
    """Return whether the output may take the place of an input that nobody else holds."""
    if kind in _REUSING_SECOND:
        return port == 1
    return kind in COMPOSITE_KINDS or (kind in _REUSING and port == 0)


def works_by_rows(kind: str) -> bool:
    """Return whether the op makes its variable one that is read by copy."""
    return kind.startswith(_BY_ROWS)


def is_dense_update(kind: str) -> bool:
    """Return whether the op writes all of its variables."""
    return kind.startswith(_DENSE_UPDATES)
