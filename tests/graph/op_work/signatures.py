"""Signatures for tests of formulas; tensors are 32-bit floats unless said otherwise."""

from placement_advisor.graph.op_work.signature import Signature, TensorSpec
from placement_advisor.graph.op_work.work import work_of

ITEM_BYTES = {"float32": 4, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "complex64": 8}


def tensor(*shape, dtype="float32"):
    return TensorSpec(shape=shape, dtype=dtype, item_bytes=ITEM_BYTES.get(dtype))


def ints(*shape):
    return tensor(*shape, dtype="int32")


def variable(*shape):
    return TensorSpec(shape=shape, dtype="float32", item_bytes=4, is_handle=True)


UNKNOWN = TensorSpec(shape=None, dtype="float32", item_bytes=4)
TABLE = TensorSpec(shape=None, dtype="resource", item_bytes=None, is_handle=True)
VARIANT = TensorSpec(shape=(), dtype="variant", item_bytes=None)


def signature(kind, inputs, outputs=(), constants=None, **attributes):
    return Signature(
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attribute=attributes.get,
        constant_input=(constants or {}).get,
    )


def counts(kind, inputs, outputs=(), constants=None, **attributes):
    """Return flops and bytes accessed."""
    found = work_of(signature(kind, inputs, outputs, constants, **attributes))
    return found.flops, found.bytes_accessed
