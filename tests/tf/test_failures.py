"""TensorFlow's errors in one line."""

from __future__ import annotations

from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule

failing_steps = RemoteModule("failing_steps")


def test_the_reason_and_the_op_are_told_without_the_stack(child):
    failure = child.call(failing_steps.of_a_session, 2)
    assert failure.message.startswith("Matrix size-incompatible: In[0]: [2,1], In[1]: [3,2]")
    assert failure.message.endswith("(op 'product')")
    assert failure.cause is FailureCause.CRASHED


def test_an_error_within_a_function_is_told_without_its_internal_name(child):
    failure = child.call(failing_steps.of_a_function)
    assert failure.message.startswith("Matrix size-incompatible: In[0]: [1,1], In[1]: [3,2]")


def test_of_several_errors_the_first_is_told(child):
    failure = child.call(failing_steps.of_several_roots)
    assert (failure.cause, failure.message) == (FailureCause.CRASHED, "first reason (op 'b')")
    assert "second reason" in failure.in_full


def test_running_out_of_memory_is_told_apart(child):
    failure = child.call(failing_steps.of_memory)
    assert failure == CallFailure(
        cause=FailureCause.OUT_OF_MEMORY,
        message="OOM when allocating",
        in_full="ResourceExhaustedError: OOM when allocating\nmore",
    )


def test_an_error_without_words_is_named(child):
    failure = child.call(failing_steps.without_words)
    assert failure == CallFailure(cause=FailureCause.CRASHED, message="KeyError")


def test_of_an_error_in_many_lines_the_cause_is_told_and_all_of_it_kept(child):
    failure = child.call(failing_steps.of_user_code)
    assert failure.message.startswith("Dimensions must be equal, but are 2 and 3")
    assert "\n" not in failure.message
    assert failure.in_full.startswith("ValueError: in user code:\n\n    File ")
    failure = child.call(failing_steps.of_a_layer)
    assert failure.message == "it takes no input"
    assert "Not this one" in failure.in_full
    assert "Arguments received by" in failure.in_full
    assert failure.in_full.replace("\n", "").isprintable()


def test_what_tf_distribute_refuses_is_told_as_the_cause_that_it_is(child):
    failure = child.call(failing_steps.of_an_optimizer_in_a_conditional)
    assert failure.message == (
        "an optimizer is applied, or a gradient exchanged, within a conditional, a loop or a "
        "tf.function, which tf.distribute refuses (`merge_call` called while defining a new graph "
        "or a tf.function)"
    )
    assert "please avoid nested `tf.function`s" in failure.in_full


def test_the_key_of_an_error_goes_with_its_kind(child):
    failure = child.call(failing_steps.of_a_key)
    assert failure.message == "KeyError: 'weights'"
    assert failure.in_full == ""
