"""Properties that hold for every kind that has a formula."""

from __future__ import annotations

import pytest
from drawn_cases import cases
from hypothesis import given
from hypothesis import strategies as st
from op_formulas import has_formula
from signatures import UNKNOWN, signature, tensor, variable

from placement_advisor.graph.op import WorkBasis
from placement_advisor.graph.op_work.signature import FREE, Signature, TensorSpec
from placement_advisor.graph.op_work.work import FORMULAS, work_of

FREE_KINDS = {kind for kind, formula in FORMULAS.items() if formula is FREE}
SHAPES = st.none() | st.lists(st.integers(0, 9), max_size=5).map(tuple)
SPECS = st.builds(
    TensorSpec,
    shape=SHAPES,
    dtype=st.sampled_from(["float32", "int32", "string", "variant", "resource"]),
    item_bytes=st.none() | st.sampled_from([1, 4, 8]),
    is_handle=st.booleans(),
)
VALUES = st.none() | st.one_of(
    st.booleans(),
    st.integers(-5, 9),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-5, 9) | st.text(max_size=3), max_size=4),
    st.sampled_from(["ij,jk->ik", "...a,ab", "abc->", "lstm", "bidirectional", ",->", "->"]),
)


@st.composite
def signatures(draw: st.DrawFn) -> Signature:
    """Signatures that mostly contradict their kind, with any attributes and constants."""
    attributes = draw(st.dictionaries(st.just("equation") | st.just("ksize") | st.text(), VALUES))
    anything = draw(VALUES)
    return Signature(
        kind="",
        inputs=tuple(draw(st.lists(SPECS, max_size=6))),
        outputs=tuple(draw(st.lists(SPECS, max_size=4))),
        attribute=lambda name: attributes.get(name, anything),
        constant_input=lambda _: anything,
    )


@cases(60)
@given(signatures())
def test_any_signature_gives_counts_that_are_not_negative_or_unknown(drawn: Signature) -> None:
    for kind in (*FORMULAS, "SomebodysOwnOp"):
        found = work_of(drawn._replace(kind=kind))
        for count in (found.flops, found.bytes_accessed):
            assert count is None or (isinstance(count, int) and count >= 0), kind


def test_unknown_shapes_give_unknown_bytes_never_zero() -> None:
    for kind in FORMULAS.keys() - FREE_KINDS:
        found = work_of(signature(kind, [UNKNOWN] * 8, [UNKNOWN] * 4))
        assert found.bytes_accessed is None, kind
        assert found.flops in (None, 0), kind


def test_what_is_free_is_known_to_be_so() -> None:
    assert {"NoOp", "Identity", "ReadVariableOp", "Const"} <= FREE_KINDS
    assert not FREE_KINDS & {"MatMul", "Transpose", "AssignVariableOp", "Fill"}


BATCH_LINEAR = {
    "Relu": lambda n: ([tensor(n, 6)], [tensor(n, 6)], {}),
    "Softmax": lambda n: ([tensor(n, 6)], [tensor(n, 6)], {}),
    "MatMul": lambda n: ([tensor(n, 6), tensor(6, 3)], [tensor(n, 3)], {}),
    "Conv2D": lambda n: ([tensor(n, 8, 8, 3), tensor(3, 3, 3, 5)], [tensor(n, 8, 8, 5)], {}),
    "MaxPool": lambda n: ([tensor(n, 8, 8, 3)], [tensor(n, 4, 4, 3)], {"ksize": [1, 2, 2, 1]}),
    "FusedBatchNormV3": lambda n: ([tensor(n, 8, 3)], [tensor(n, 8, 3)], {}),
    "Einsum": lambda n: (
        [tensor(n, 6, 4), tensor(4, 5)],
        [tensor(n, 6, 5)],
        {"equation": "abc,cd->abd"},
    ),
    "UnsortedSegmentSum": lambda n: ([tensor(n, 6), tensor(n, dtype="int32")], [tensor(9, 6)], {}),
    "Cholesky": lambda n: ([tensor(n, 6, 6)], [tensor(n, 6, 6)], {}),
}


@pytest.mark.parametrize("kind", BATCH_LINEAR)
@given(batch=st.integers(1, 64))
def test_twice_the_batch_takes_twice_the_flops(kind: str, batch: int) -> None:
    def flops(n: int) -> int | None:
        inputs, outputs, attributes = BATCH_LINEAR[kind](n)
        return work_of(signature(kind, inputs, outputs, **attributes)).flops

    once, twice = flops(batch), flops(2 * batch)
    assert once
    assert twice == 2 * once


def test_composite_ops_have_none_of_their_own() -> None:
    assert not any(map(has_formula, ("While", "If", "StatefulPartitionedCall", "_Unheard")))


def test_the_basis_says_whether_a_formula_was_there() -> None:
    assert work_of(signature("Relu", [UNKNOWN], [UNKNOWN])).basis is WorkBasis.FORMULA
    assert work_of(signature("Unheard", [tensor(3)])).basis is WorkBasis.SIZES


def test_an_update_does_not_need_the_size_of_its_variable() -> None:
    known = work_of(signature("AssignAddVariableOp", [variable(5), tensor(5)]))
    handle = TensorSpec(shape=None, dtype="resource", item_bytes=None, is_handle=True)
    assert work_of(signature("AssignAddVariableOp", [handle, tensor(5)])) == known
