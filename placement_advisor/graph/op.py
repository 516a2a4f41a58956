"""Ops, their roles, the edges between them, and totals of which some parts are unknown."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, NamedTuple

from annotated_types import Ge, Le
from pydantic import AfterValidator, Strict

from placement_advisor.files.contract import Bytes, Count, Rows, Text, What
from placement_advisor.files.untrusted import MAX_BYTES, MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterable


CONTROL_PORT = -1
Dimension = Annotated[int, Ge(1), Le(MAX_BYTES), What("a dimension from 1 to 10^15")]
Port = Annotated[int, Ge(CONTROL_PORT), Le(MAX_INTEGER), What("a port")]
# Thousands of ops have equal ones: they are one object.
Word = Annotated[Text, AfterValidator(sys.intern)]
# Ops that hold others: the bodies of loops, the branches of conditionals.
# Kinds of ops that assign variables begin with these.
UPDATE_KINDS = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
LOOP_KINDS = frozenset({"While", "StatelessWhile"})
BRANCH_KINDS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
# Ops that pick rows of a table, by index.
LOOKUP_KINDS = frozenset({"Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd"})
# Ops that make as many numbers as they find. On a GPU their host reads how many, to allocate them:
# where_op.cc, dynamic_partition_op_gpu.cu.cc, unique_op_gpu.cu.h, non_max_suppression_op.cu.cc.
COUNTING_KINDS = frozenset(
    {
        *("Where", "DynamicPartition", "Unique"),
        *(f"NonMaxSuppressionV{version}" for version in (2, 3, 4)),
    }
)
# Ops that call a function; a traced step has them in bodies alone.
CALL_KINDS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


@lru_cache
def _one(kinds: frozenset[str]) -> frozenset[str]:
    """Return the set that came first of those that are equal."""
    return kinds


class Inside(NamedTuple):
    """What one run of a loop or conditional comes to on a GPU, where its ops are placed singly.

    ``ops`` run in it, those of all trips, or of the branch that takes most. ``copies`` tensors
    cross between those of them that have no GPU kernel and the others, ``copied_bytes`` in all,
    None if that is not known; a number that the host reads of an op (`COUNTING_KINDS`) is one.
    """

    ops: Count
    copies: Count
    copied_bytes: Bytes | None


class KernelFamily(StrEnum):
    """What a kernel computes.

    ``LINEAR`` is one product with a transposed right operand, as PyTorch keeps weights; ``BMM`` is
    another one, or a batch of them. ``CONV_BY_INPUT`` and ``CONV_BY_FILTER`` are the gradients of a
    convolution, with the dimensions of the convolution.
    """

    LINEAR = "linear"
    BMM = "bmm"
    CONV = "conv"
    CONV_BY_INPUT = "conv_by_input"
    CONV_BY_FILTER = "conv_by_filter"
    ADD = "add"
    MUL = "mul"
    RELU = "relu"
    TANH = "tanh"
    SOFTMAX = "softmax"


class Arithmetic(StrEnum):
    """In which numbers a kernel computes.

    ``DEFAULT`` is TensorFlow's: float32, of which products and convolutions may keep ten bits of
    the fraction (TF32) where a GPU has units for that. ``FLOAT32`` are such that may not. Halves
    are added up in float32.
    """

    DEFAULT = "default"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class Kernel(NamedTuple):
    """One kernel; ``dims`` are named in `DIMENSIONS`, each 1 or more."""

    family: Annotated[KernelFamily, Strict(False)]
    dims: Rows[Dimension]
    arithmetic: Annotated[Arithmetic, Strict(False)] = Arithmetic.DEFAULT


# A product is [m, k] @ [k, n]. Of a convolution, ``stride`` is the larger one of both axes.
_PRODUCT = ("count", "m", "k", "n")
_CONVOLUTION = (
    *("batch", "inputs", "outputs", "filter_height", "filter_width"),
    *("image_height", "image_width", "result_height", "result_width", "stride"),
)
_ROWS = ("rows", "length")
DIMENSIONS: dict[KernelFamily, tuple[str, ...]] = {
    KernelFamily.LINEAR: _PRODUCT,
    KernelFamily.BMM: _PRODUCT,
    KernelFamily.CONV: _CONVOLUTION,
    KernelFamily.CONV_BY_INPUT: _CONVOLUTION,
    KernelFamily.CONV_BY_FILTER: _CONVOLUTION,
    KernelFamily.ADD: _ROWS,
    KernelFamily.MUL: _ROWS,
    KernelFamily.RELU: _ROWS,
    KernelFamily.TANH: _ROWS,
    KernelFamily.SOFTMAX: _ROWS,
}
# What matrix units do, where a GPU has some.
MATRIX_FAMILIES = frozenset(
    family for family, dims in DIMENSIONS.items() if dims in (_PRODUCT, _CONVOLUTION)
)


class WorkBasis(StrEnum):
    """Where an op's flops and bytes accessed come from.

    ``FORMULA``: a formula for its kind. ``SIZES``: none; bytes in plus bytes out, flops unknown.
    """

    FORMULA = "formula"
    SIZES = "sizes"


class Role(StrEnum):
    """What an op does within the step."""

    INPUT = "input"
    CONSTANT = "constant"
    VARIABLE = "variable"
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


# Graphs have tens of thousands of ops and more edges. A named tuple is made in a third of the time
# that a frozen dataclass takes, and goes from process to process in a fraction of it.
class Op(NamedTuple):
    """One op of the step.

    ``layer`` names the call of a layer that the op belongs to; a gradient op carries the layer
    whose forward op it serves, an update op the layer of its variable. ``variable`` names the
    variable or table that the op holds, reads or updates; such ops run on one device. In an
    `OpGraph` each op of role VARIABLE has one, its own name if none was given.
    ``output_bytes`` has one entry per output port, None where the size is unknown.

    ``flops`` and ``bytes_accessed`` (reads plus writes of memory) are those of one run of the op,
    None where unknown; ``work_basis`` says where they come from, None if both are unknown.
    ``device_kinds`` are those with a kernel for the op's types. ``host_outputs`` are the ports
    whose tensor the GPU kernel leaves in host memory. A loop or conditional is one *composite*
    op; ``trips`` is how often a loop's body runs, where that is known, and ``inside`` what it runs.
    ``kernel`` is what a GPU runs for the op, None if that is no kernel with a known time.
    """

    name: Text
    kind: Word
    role: Annotated[Role, Strict(False)] = Role.FORWARD
    layer: Word | None = None
    variable: Word | None = None
    flops: Count | None = None
    bytes_accessed: Count | None = None
    work_basis: Annotated[WorkBasis, Strict(False)] | None = None
    trips: Count | None = None
    output_bytes: Rows[Bytes | None] = ()
    parameter_bytes: Bytes = 0
    device_kinds: Annotated[frozenset[Word], Strict(False), AfterValidator(_one)] = frozenset(
        {"CPU"}
    )
    host_outputs: Rows[Annotated[Count, What("a port")]] = ()
    kernel: Kernel | None = None
    inside: Inside | None = None


class Edge(NamedTuple):
    """One tensor on its way from ``producer`` to ``consumer``; port -1 is a control edge."""

    producer: Text
    consumer: Text
    port: Port
    size_bytes: Bytes | None = None

    @property
    def is_control(self) -> bool:
        """Whether the edge only orders its ends."""
        return self.port == CONTROL_PORT

    @property
    def tensor(self) -> tuple[str, int]:
        """The op that makes the tensor, and its port."""
        return self.producer, self.port


COMPUTING_ROLES = frozenset({Role.FORWARD, Role.BACKWARD, Role.UPDATE})
# What only a training step has.
TRAINING_ROLES = frozenset({Role.BACKWARD, Role.UPDATE})
# The forward and the backward pass.
PASS_ROLES = frozenset({Role.FORWARD, Role.BACKWARD})
# Inputs start on the host in any case, and constants are copied to whoever reads them.
KERNEL_FREE_ROLES = frozenset({Role.CONSTANT, Role.INPUT})
# May lack a cost: a handle or a fed tensor is there, nothing computes it.
COST_FREE_ROLES = frozenset({Role.VARIABLE, Role.INPUT})
# Values that stand between steps.
STANDING_ROLES = frozenset({Role.CONSTANT, Role.VARIABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """A sum of parts, some of which may be unknown."""

    amount: Count | None
    """Of known parts."""
    parts: Count
    unknown: Count

    @property
    def known(self) -> int:
        """The sum of what is known, 0 if nothing is."""
        return self.amount or 0

    @property
    def exact(self) -> int | None:
        """The sum, None if any part is unknown."""
        return None if self.unknown else self.amount

    @property
    def is_floor(self) -> bool:
        """Whether some of the parts are missing."""
        return self.unknown > 0

    @property
    def known_share(self) -> float:
        """Share of the parts that are known, by count; 1.0 if there are none."""
        return 1 - self.unknown / self.parts if self.parts else 1.0

    @classmethod
    def of(cls, values: Iterable[int | None]) -> Total:
        """Add up."""
        given = list(values)
        known = [value for value in given if value is not None]
        amount = sum(known) if known or not given else None
        return cls(amount=amount, parts=len(given), unknown=len(given) - len(known))
