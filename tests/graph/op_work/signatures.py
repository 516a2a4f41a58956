"""Signatures for tests of formulas; tensors are 32-bit floats unless said otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placement_advisor.graph.op_work.signature import Signature, TensorSpec, Work
from placement_advisor.graph.op_work.work import work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ITEM_BYTES = {"float32": 4, "int32": 4, "int64": 8, "bool": 1, "uint8": 1, "complex64": 8}


def tensor(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype, item_bytes=ITEM_BYTES.get(dtype))


def ints(*shape: int) -> TensorSpec:
    return tensor(*shape, dtype="int32")


def variable(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype="float32", item_bytes=4, is_handle=True)


UNKNOWN = TensorSpec(shape=None, dtype="float32", item_bytes=4)
TABLE = TensorSpec(shape=None, dtype="resource", item_bytes=None, is_handle=True)
VARIANT = TensorSpec(shape=(), dtype="variant", item_bytes=None)


def signature(
    kind: str,
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec] = (),
    constants: Mapping[int, Any] | None = None,
    **attributes: Any,
) -> Signature:
    return Signature(
        kind=kind,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attribute=attributes.get,
        constant_input=(constants or {}).get,
    )


def work(
    kind: str,
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec] = (),
    constants: Mapping[int, Any] | None = None,
    **attributes: Any,
) -> Work:
    return work_of(signature(kind, inputs, outputs, constants, **attributes))


def counts(
    kind: str,
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec] = (),
    constants: Mapping[int, Any] | None = None,
    **attributes: Any,
) -> tuple[int | None, int | None]:
    """Return flops and bytes accessed."""
    found = work(kind, inputs, outputs, constants, **attributes)
    return found.flops, found.bytes_accessed
