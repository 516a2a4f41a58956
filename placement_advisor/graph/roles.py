"""Sets of roles by what their ops have in common."""

from __future__ import annotations

from placement_advisor.graph.op import Role

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
