"""TensorFlow's errors in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placement_advisor.processes.call_failure import CallFailure, FailureCause
from placement_advisor.processes.remote import RemoteModule

if TYPE_CHECKING:
    from placement_advisor.processes.children import Child

failing_steps = RemoteModule("failing_steps")


def test_the_reason_and_the_op_are_told_without_the_stack(child: Child) -> None:
    failure = child.call(failing_steps.of_a_session, 2, time_limit_s=600.0)
    assert failure.message.startswith("Matrix size-incompatible: In[0]: [2,1], In[1]: [3,2]")
    assert failure.message.endswith("(op 'product')")
    assert failure.cause is FailureCause.CRASHED


def test_an_error_within_a_function_is_told_without_its_internal_name(child: Child) -> None:
    failure = child.call(failing_steps.of_a_function, time_limit_s=600.0)
    assert failure.message.startswith("Matrix size-incompatible: In[0]: [1,1], In[1]: [3,2]")


def test_of_several_errors_the_first_is_told(child: Child) -> None:
    failure = child.call(failing_steps.of_several_roots, time_limit_s=600.0)
    assert failure == CallFailure(cause=FailureCause.CRASHED, message="first reason (op 'b')")


def test_running_out_of_memory_is_told_apart(child: Child) -> None:
    failure = child.call(failing_steps.of_memory, time_limit_s=600.0)
    assert failure == CallFailure(cause=FailureCause.OUT_OF_MEMORY, message="OOM when allocating")


def test_an_error_without_words_is_named(child: Child) -> None:
    failure = child.call(failing_steps.without_words, time_limit_s=600.0)
    assert failure == CallFailure(cause=FailureCause.CRASHED, message="KeyError")
