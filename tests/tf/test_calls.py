"""Errors of TensorFlow in children are told in one line."""

import pytest

from placement_advisor.processes.calls import CallFailure, FailureCause, RemoteModule

failing_steps = RemoteModule("failing_steps")


@pytest.mark.parametrize(
    ("failing", "start", "end", "in_full"),
    [
        # The reason and the op are told without the stack.
        (
            "of_a_session",
            "Matrix size-incompatible: In[0]: [2,1], In[1]: [3,2]",
            "(op 'product')",
            "",
        ),
        # An error within a function is told without its internal name.
        ("of_a_function", "Matrix size-incompatible: In[0]: [1,1], In[1]: [3,2]", "", ""),
        # Of several errors the first is told.
        ("of_several_roots", "first reason (op 'b')", "(op 'b')", "second reason"),
        # An error without words is named; the key of an error goes with its kind.
        ("without_words", "KeyError", "KeyError", None),
        ("of_a_key", "KeyError: 'weights'", "'weights'", None),
        # Of an error in many lines the cause is told, and all of it kept.
        (
            "of_user_code",
            "Dimensions must be equal, but are 2 and 3",
            "",
            "ValueError: in user code:\n\n",
        ),
        ("of_a_layer", "it takes no input", "it takes no input", "Not this one"),
        ("of_a_layer", "it takes no input", "it takes no input", "Arguments received by"),
    ],
)
def test_an_error_is_told_in_one_line_and_kept_in_full(loader, failing, start, end, in_full):
    failure = loader.call(getattr(failing_steps, failing))
    assert failure.cause is FailureCause.CRASHED
    assert failure.message.startswith(start)
    assert failure.message.endswith(end)
    assert "\n" not in failure.message
    assert failure.in_full == "" if in_full is None else in_full in failure.in_full
    assert failure.in_full.replace("\n", "").replace("\t", "").isprintable()


def test_running_out_of_memory_is_told_apart(loader):
    assert loader.call(failing_steps.of_memory) == CallFailure(
        cause=FailureCause.OUT_OF_MEMORY,
        message="OOM when allocating",
        in_full="ResourceExhaustedError: OOM when allocating\nmore",
    )


def test_what_tf_distribute_refuses_is_told_as_the_cause_that_it_is(loader):
    failure = loader.call(failing_steps.of_an_optimizer_in_a_conditional)
    assert failure.message == (
        "an optimizer is applied, or a gradient exchanged, within a conditional, a loop or a "
        "tf.function, which tf.distribute refuses (`merge_call` called while defining a new graph "
        "or a tf.function)"
    )
    assert "please avoid nested `tf.function`s" in failure.in_full
