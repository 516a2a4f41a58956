"""Work of an op: how much arithmetic it takes and how many bytes it reads and writes.

Conventions of all formulas:

- a multiply-add is 2 flops; functions beyond that take the counts of `elementwise.py`; integer
  operations, comparisons and selections count like floating-point ones;
- bytes accessed are the traffic that cannot be avoided: each input read once, each output written
  once, an updated variable read and written. A kernel that must pass over a tensor again counts
  the pass, and its family's docstring says why;
- what is unknown is None, never 0. A kind without a formula has the bytes of its inputs and
  outputs and unknown flops.

Left out: an input given twice to one op (it counts twice, as a signature does not tell), caches,
padding and workspaces of kernels, and the choice of algorithm (Winograd, Strassen).
"""

from placement_advisor.graph.op import WorkBasis
from placement_advisor.graph.op_work import arithmetic, elementwise, movement
from placement_advisor.graph.op_work import signature as op_signature

FORMULAS = arithmetic.FORMULAS | elementwise.FORMULAS | movement.FORMULAS


def work_of(signature: op_signature.Signature) -> op_signature.Work:
    """Return the flops and bytes accessed of one run of an op."""
    # TensorFlow marks what users do not call itself: `_Arg`, `_Send`.
    formula = FORMULAS.get(signature.kind.removeprefix("_"))
    if formula is None:
        return op_signature.Work(
            flops=None, bytes_accessed=_count(_sizes, signature), basis=WorkBasis.SIZES
        )
    if formula is op_signature.FREE:  # More than half of all ops are.
        return op_signature.NO_WORK
    return op_signature.Work(
        flops=_count(formula.flops, signature),
        bytes_accessed=_count(formula.bytes_accessed, signature),
        basis=WorkBasis.FORMULA,
    )


def _count(rule: op_signature.Count, signature: op_signature.Signature) -> int | None:
    try:
        count = rule(signature)
    except op_signature.CONTRADICTIONS:
        return None
    return count if count >= 0 else None


def _sizes(signature: op_signature.Signature) -> int:
    """Count inputs and outputs, and a variable behind a handle as read once."""
    handles = sum(op_signature.bytes_of(spec) for spec in signature.inputs if spec.is_handle)
    return op_signature.moved(signature) + handles
