"""The signature of an op, and the parts that formulas for its work are made of.

A signature holds what a formula sees of an op, free of TensorFlow. The parts are sizes of its
tensors and rules for flops and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeVar

from placement_advisor.graph.op import WorkBasis


class TensorSpec(NamedTuple):
    """Shape and element type of a tensor, or of the variable that a handle stands for.

    ``shape`` is None where the rank or any dimension is unknown. ``item_bytes`` is None for
    elements without a fixed size (texts, variants). ``is_handle`` marks a resource; its shape and
    items are the variable's, None if it holds something else.
    """

    shape: tuple[int, ...] | None
    dtype: str
    item_bytes: int | None
    is_handle: bool = False

    @property
    def elements(self) -> int | None:
        """Number of elements, None if unknown."""
        return None if self.shape is None else prod(self.shape)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the tensor, None if unknown."""
        if self.shape is None or self.item_bytes is None:
            return None
        return prod(self.shape) * self.item_bytes


class Signature(NamedTuple):
    """One op as a formula sees it.

    ``attribute`` returns an attribute by name as a plain Python value (int, float, bool, str,
    list, None if the op has none of that name). ``constant_input`` returns the value of an input
    that is a constant (as nested lists or a number), None if it is not one.
    """

    kind: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attribute: Callable[[str], Any]
    constant_input: Callable[[int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Arithmetic and memory traffic of one run of an op; None where unknown."""

    flops: int | None
    bytes_accessed: int | None
    basis: WorkBasis


NO_WORK = Work(flops=0, bytes_accessed=0, basis=WorkBasis.FORMULA)


# TensorFlow's string object (tstring) on 64-bit machines.
TEXT_BYTES = 24
# What reading shapes, attributes and constants of an op that contradicts its kind can raise:
# graph files are data, and what makes no sense has no known work.
CONTRADICTIONS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class UnknownSizeError(ValueError):
    """A size that a rule needs is unknown."""


def elements(spec: TensorSpec) -> int:
    """Return the number of elements.

    Raises:
        UnknownSizeError: the shape is unknown.
    """
    if spec.shape is None:
        raise UnknownSizeError
    return prod(spec.shape)


def shape_of(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape.

    Raises:
        UnknownSizeError: the shape is unknown.
    """
    if spec.shape is None:
        raise UnknownSizeError
    return spec.shape


def item_bytes_of(spec: TensorSpec) -> int:
    """Return the bytes of one element.

    Raises:
        UnknownSizeError: elements have no fixed size.
    """
    if spec.item_bytes is not None:
        return spec.item_bytes
    if spec.dtype == "string":
        return TEXT_BYTES
    raise UnknownSizeError


def bytes_of(spec: TensorSpec) -> int:
    """Return the bytes of a tensor, or of the variable that a handle stands for.

    Raises:
        UnknownSizeError: shape or element size are unknown.
    """
    return elements(spec) * item_bytes_of(spec)


def bytes_of_all(specs: Iterable[TensorSpec]) -> int:
    """Return the bytes of tensors; handles count nothing.

    Raises:
        UnknownSizeError: the size of one is unknown.
    """
    return sum(bytes_of(spec) for spec in specs if not spec.is_handle and spec.dtype != "resource")


def constant(signature: Signature, index: int) -> Any:
    """Return the value of a constant input.

    Raises:
        UnknownSizeError: the input is not a constant.
    """
    value = signature.constant_input(index)
    if value is None:
        raise UnknownSizeError
    return value


Count = Callable[[Signature], int]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Rule:
    """A number that follows from a signature; sums, products and multiples of rules are, too."""

    count: Count

    def __call__(self, signature: Signature) -> int:
        """Return the number."""
        return self.count(signature)

    def __add__(self, other: Count) -> Rule:
        return Rule(lambda signature: self(signature) + other(signature))

    def __mul__(self, other: Count) -> Rule:
        return Rule(lambda signature: self(signature) * other(signature))

    def __rmul__(self, times: int) -> Rule:
        return Rule(lambda signature: times * self(signature))


def elements_in(place: int) -> Rule:
    """Count the elements of an input."""
    return Rule(lambda signature: elements(signature.inputs[place]))


def elements_out(port: int = 0) -> Rule:
    """Count the elements of an output."""
    return Rule(lambda signature: elements(signature.outputs[port]))


def bytes_in(place: int) -> Rule:
    """Count the bytes of an input, or of the variable that it stands for."""
    return Rule(lambda signature: bytes_of(signature.inputs[place]))


def bytes_out(port: int = 0) -> Rule:
    """Count the bytes of an output."""
    return Rule(lambda signature: bytes_of(signature.outputs[port]))


def read_from(place: int) -> Rule:
    """Read every input from one on once."""
    return Rule(lambda signature: bytes_of_all(signature.inputs[place:]))


# It computes nothing, or touches no tensor's elements.
nothing = Rule(lambda _: 0)
# It writes every output once, and reads no more than a few numbers.
written = Rule(lambda signature: bytes_of_all(signature.outputs))
# It reads every input once and writes every output once.
moved = read_from(0) + written


class Formula(NamedTuple):
    """The rules of a kind: arithmetic, and bytes that it reads and writes."""

    flops: Count = nothing
    bytes_accessed: Count = moved


def of_kinds(kinds: str, value: Value) -> dict[str, Value]:
    """Return the same value for each of the kinds, which blanks separate."""
    return dict.fromkeys(kinds.split(), value)


FREE = Formula(nothing, nothing)
