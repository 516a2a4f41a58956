"""How processes of a testbed have died: others only see broken connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.processes.call_failure import CallFailure, FailureCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement_advisor.errors import AdvisorError
    from placement_advisor.processes.callee import Callee
    from placement_advisor.testbed.site import Site

# TensorFlow reports a lost connection a little before the kernel reports the dead process.
_DEATH_GRACE_S = 0.5


def crash(error: AdvisorError) -> CallFailure:
    """Return an error that ends the processes of a candidate as the answer to a call of them."""
    return CallFailure(cause=FailureCause.CRASHED, message=error.message, child_ended=True)


def has_crashed(answer: object) -> bool:
    """Say whether a process is gone, and neither its time nor its memory was up."""
    return (
        isinstance(answer, CallFailure)
        and answer.child_ended
        and answer.cause is FailureCause.CRASHED
    )


def dead_among(children: Sequence[Callee], site: Site) -> CallFailure | None:
    """Return how one of several processes of a site died, if one did."""
    site.hear()  # A connection may break before it is known that its host is gone.
    for child in children:
        failure = child.failure(within_s=_DEATH_GRACE_S / len(children))
        if failure is not None:
            return failure
    return None
