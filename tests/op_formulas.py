"""Which kinds of ops have a formula for their work."""

from placement_advisor.graph.op import WorkBasis
from placement_advisor.graph.op_work.signature import Signature
from placement_advisor.graph.op_work.work import work_of


def has_formula(kind):
    """Return whether the kind, or the one that it stands in for, has a formula of its own."""
    bare = Signature(
        kind=kind, inputs=(), outputs=(), attribute=lambda _: None, constant_input=lambda _: None
    )
    return work_of(bare).basis is WorkBasis.FORMULA
