"""What the user's own code can do wrong, each really done."""

import pytest

from placement_advisor.processes import children

MODEL = """
import keras
import tensorflow as tf
first = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
second = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
first.compile(loss="mse")
second.compile(loss="mse")
dataset = tf.data.Dataset.from_tensors((tf.zeros((8, 4)), tf.zeros((8, 2))))
"""
# A run that gets past loading takes seconds; a quick one takes one or two.
QUICK = ("--quick", "--quiet")


@pytest.fixture
def failing(advisor, write_model, tmp_path, monkeypatch):
    """Analyses code that cannot be analysed; returns the error, after checks that hold for all."""
    monkeypatch.chdir(tmp_path)

    def run(code, *words, name="model.py"):
        if code is not None:
            write_model(code)
        output = tmp_path / "a" / "b"
        ran = advisor("analyze", name, "-o", str(output), *QUICK, *words)
        assert ran.code == 2
        assert ran.out == ""
        assert ran.err.startswith("advisor: error: ")
        assert "placement_advisor" not in ran.err
        assert not (tmp_path / "a").exists()
        return ran.err

    return run


def test_garbage_in_a_python_file_is_not_python(failing, tmp_path):
    (tmp_path / "model.py").write_bytes(bytes(range(256)) * 4)
    error = failing(None)
    assert "model.py: not a Python file: it holds null bytes" in error


def test_a_python_file_in_another_encoding_is_named_with_its_line(failing, tmp_path):
    (tmp_path / "model.py").write_bytes("NAME = 'Müller'\n".encode("latin-1"))
    assert "model.py:1: not valid Python: (unicode error)" in failing(None)


def test_data_that_the_file_cannot_decode_is_an_error_of_its_line(failing, tmp_path):
    (tmp_path / "words.txt").write_bytes("Müller".encode("latin-1"))
    error = failing("from pathlib import Path\n\nPath('words.txt').read_text('utf-8')\n")
    assert "model.py: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xfc" in error
    assert 'model.py", line 3' in error


def test_a_syntax_error_is_named_with_file_and_line(failing):
    error = failing("import os\n\ndef broken(:\n    pass\n")
    assert "model.py:3: not valid Python: invalid syntax" in error


def test_an_exception_is_shown_with_the_users_own_lines_alone(failing, tmp_path):
    (tmp_path / "sizes.py").write_text("def units():\n    return 1 // 0\n")
    error = failing("import sizes\n\nUNITS = sizes.units()\n")
    # Pythons differ in what they underline with carets and tildes.
    lines = [line for line in error.splitlines() if line.strip(" ^~")]
    assert lines == [
        "advisor: error: model.py: ZeroDivisionError: integer division or modulo by zero",
        '  File "model.py", line 3, in <module>',
        "    UNITS = sizes.units()",
        '  File "sizes.py", line 2, in units',
        "    return 1 // 0",
    ]


def test_an_exception_deep_in_keras_is_shown_at_the_users_line(failing):
    error = failing("import keras\n\nkeras.layers.Dense(units=-3)\n")
    assert "ValueError" in error
    assert 'model.py", line 3, in <module>' in error
    assert "site-packages" not in error


def test_an_import_that_fails_is_named(failing):
    error = failing("import no_such_module\n")
    assert "No module named 'no_such_module'" in error
    assert 'model.py", line 1' in error
    assert "install it beside advisor" in error


def test_magics_of_a_notebook_are_told_to_be_deleted(failing):
    error = failing("get_ipython().system('ls')\n")
    assert "name 'get_ipython' is not defined" in error
    assert "delete these lines" in error


def test_a_pytorch_file_is_told_what_is_read_of_its_program(failing):
    error = failing("import torch.nn as nn\n")
    assert "not from PyTorch" in error
    assert "`advisor profile`" in error


def test_an_exception_that_is_no_exception_is_shown_as_well(failing):
    error = failing("class Halt(BaseException): pass\n\nraise Halt('here')\n")
    assert "Halt: here" in error
    assert 'model.py", line 3' in error


def test_a_step_that_cannot_be_traced_is_shown_at_the_users_line(failing):
    error = failing(
        "import tensorflow as tf\n"
        "@tf.function\n"
        "def train_step(x):\n"
        "    return tf.matmul(x, x)\n"
        "inputs = (tf.zeros((2, 3)),)\n"
    )
    assert "train_step cannot be traced" in error
    assert 'model.py", line 4' in error


def test_a_keras_model_that_cannot_be_traced_is_shown_at_the_users_line(failing):
    error = failing(
        MODEL + "class Odd(keras.Model):\n"
        "    def train_step(self, data):\n"
        "        raise LookupError('no such data')\n"
        "model = Odd(first.inputs, first.outputs)\n"
        "model.compile(loss='mse')\n"
    )
    assert "odd cannot be traced" in error
    assert "LookupError: no such data" in error
    assert 'model.py", line 11, in train_step' in error


def test_a_script_that_runs_no_step_is_told_what_was_waited_for(failing):
    error = failing(
        "import keras\ndef main():\n    model = keras.Sequential([keras.layers.Dense(1)])\nmain()\n"
    )
    assert "the script ran to its end without a step, and no model found in it" in error
    assert "looked for a call of fit, a tf.function or Session.run" in error


def test_a_file_without_a_model_is_told_what_was_looked_for(failing):
    error = failing("import tensorflow as tf\ninputs = tf.zeros((2, 2))\n")
    assert "no model found" in error
    assert "tf.function named train_step, training_step or step, a keras.Model" in error


def test_a_model_whose_inputs_are_unknown_is_told_how_to_give_some(failing):
    error = failing("import keras\nclass Net(keras.Model):\n    pass\nmodel = Net()\n")
    assert "model (Net) does not say what inputs it takes" in error
    assert "`dataset` (a tf.data.Dataset) or `inputs`" in error


def test_inputs_that_are_no_tensors_are_refused(failing):
    error = failing(MODEL.replace("dataset", "data") + "model = first\ninputs = object()\n")
    assert "`inputs` is not made of tensors" in error


def test_several_models_are_named_and_one_can_be_chosen(failing, advisor, tmp_path):
    error = failing(MODEL)
    assert "several models: first, second" in error
    assert "model.py:first" in error
    chosen = advisor("analyze", "model.py:second", "-o", str(tmp_path / "out"), *QUICK)
    assert chosen.code == 0, chosen.err


def test_a_name_that_is_not_there_is_answered_with_those_that_are(failing):
    error = failing(MODEL, name="model.py:third")
    assert "nothing is called 'third'" in error
    assert "first" in error
    assert "second" in error


def test_a_name_that_is_no_model_is_refused(failing):
    error = failing(MODEL, name="model.py:dataset")
    assert "'dataset' is a" in error


def test_an_uncompiled_model_cannot_be_analysed_training(failing):
    code = MODEL.replace('first.compile(loss="mse")\n', "")
    assert "first is not compiled" in failing(code, "--mode", "train", name="model.py:first")


def test_sys_exit_while_loading_is_shown_with_its_line(failing):
    error = failing("import sys\n\nsys.exit(0)\n", name="model.py:model")
    assert "called sys.exit(0)" in error
    assert 'model.py", line 3' in error
    assert '__name__ == "__main__"' in error


def test_a_process_that_exits_hard_is_reported_with_what_it_printed_last(failing):
    error = failing("import os\nprint('so far so good')\nos._exit(7)\n")
    assert "model.py: loading failed: loader exited with status 7" in error
    assert "so far so good" in error


def test_a_segmentation_fault_is_reported_with_file_and_line(failing):
    error = failing("import ctypes\n\n\ndef crash():\n    ctypes.string_at(0)\n\n\ncrash()\n")
    assert "model.py:5: loading failed: loader was killed by SIGSEGV" in error


def test_an_endless_loop_is_stopped_at_its_limit_and_its_line_shown(failing):
    error = failing("n = 0\nwhile True:\n    n += 1\n", "--capture-timeout", "2")
    assert "no step was seen within 2 s" in error
    assert any(f"model.py:{line}:" in error for line in (2, 3))
    assert "--capture-timeout" in error


def test_an_endless_loop_while_tracing_is_stopped_as_well(failing):
    error = failing(
        "import tensorflow as tf\n"
        "@tf.function\n"
        "def train_step(x):\n"
        "    import time; time.sleep(60)\n"
        "    return x\n"
        "inputs = (tf.zeros((2, 3)),)\n",
        "--time-limit",
        "2",
    )
    assert "tracing failed: loader gave no answer within 2 s" in error


def test_a_child_that_eats_memory_is_stopped_and_its_line_shown(failing, monkeypatch):
    # A limit of 2 GB, so that the machine that tests is in no danger.
    monkeypatch.setattr(children, "available_memory_bytes", lambda: 2_500_000_000)
    error = failing(
        "import time\n"
        "eaten = []\n"
        "while len(eaten) < 80:\n"
        "    eaten.append(bytes([1]) * 50_000_000); time.sleep(0.01)\n"
        "raise AssertionError('all eaten')\n"
    )
    assert "model.py:4: loading failed: loader used more than 2.0 GB" in error
    assert "smaller" in error


def test_processes_that_the_users_code_starts_end_with_it(failing):
    # The fixture looks for what is left.
    failing("import subprocess\nsubprocess.Popen(['sleep', '600'])\nraise KeyError('x')\n")


def test_junk_in_every_descriptor_is_a_failure_of_the_loader(failing):
    error = failing(
        "import contextlib, os\n"
        "for descriptor in range(3, 1_000):\n"
        "    with contextlib.suppress(OSError):\n"
        "        os.write(descriptor, b'hello, world')\n"
    )
    assert "loading failed: loader gave an answer that cannot be read (OSError" in error
