"""What the user's own code can do wrong, each really done."""

import pytest
from cli_answers import refusal

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


STEP = """
import tensorflow as tf
@tf.function
def train_step(x):
    {body}
inputs = (tf.zeros((2, 3)),)
"""
ODD = """
class Odd(keras.Model):
    def train_step(self, data):
        raise LookupError('no such data')
model = Odd(first.inputs, first.outputs)
model.compile(loss='mse')
"""


@pytest.fixture
def failing(advisor, tmp_path, monkeypatch):
    """Analyses code that cannot be analysed; returns the error, after checks that hold for all."""
    monkeypatch.chdir(tmp_path)

    def run(code, words="model.py"):
        (tmp_path / "model.py").write_bytes(code if isinstance(code, bytes) else code.encode())
        output = tmp_path / "a" / "b"
        error = refusal(advisor("analyze", *words.split(), "-o", str(output), *QUICK))
        assert error.startswith("advisor: error: ")
        assert "placement_advisor" not in error
        assert "site-packages" not in error.partition("It last printed")[0]
        assert not (tmp_path / "a").exists()
        return error

    return run


# What is said of each, with other words between.
@pytest.mark.parametrize(
    ("code", "said"),
    [
        # What is no Python.
        (bytes(range(256)) * 4, "model.py: not a Python file: it holds null bytes"),
        ("NAME = 'Müller'\n".encode("latin-1"), "model.py:1: not valid Python: (unicode error)"),
        ("import os\n\ndef f(:\n    pass\n", "model.py:3: not valid Python: invalid syntax"),
        # What raises is shown at the user's line.
        (
            "from pathlib import Path\n\nPath('words.txt').read_text('utf-8')\n",
            "model.py: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xfc ... line 3",
        ),
        (
            "import keras\n\nkeras.layers.Dense(units=-3)\n",
            'ValueError ... model.py", line 3, in <module>',
        ),
        (
            "import no_such_module\n",
            "No module named 'no_such_module' ... line 1 ... "
            "install it in the same environment as advisor",
        ),
        (
            "get_ipython().system('ls')\n",
            "name 'get_ipython' is not defined ... delete these lines",
        ),
        ("import torch.nn as nn\n", "not of PyTorch ... `advisor profile`"),
        (
            "class Halt(BaseException): pass\n\nraise Halt('here')\n",
            'Halt: here ... model.py", line 3',
        ),
        (
            STEP.format(body="return tf.matmul(x, x)"),
            'train_step cannot be traced ... model.py", line 5',
        ),
        (
            MODEL + ODD,
            "odd cannot be traced ... LookupError: no such data ... "
            'model.py", line 12, in train_step',
        ),
        # What is no model, and of several the one that was meant.
        (
            "import keras\ndef f():\n    model = keras.Sequential([keras.layers.Dense(1)])\nf()\n",
            "the script ran to its end without a step, and no model found in it ... "
            "looked first for a call of fit, a tf.function or Session.run",
        ),
        (
            MODEL.replace("dataset", "data") + "model = first\ninputs = object()\n",
            "`inputs` is not made of tensors",
        ),
        (MODEL, "several models: first, second ... model.py:first"),
        # What ends or harms the process. The fixture looks for what is left.
        (
            "import os\nprint('so far so good')\nos._exit(7)\n",
            "model.py: loading failed: loader exited with status 7 ... so far so good",
        ),
        ("import subprocess\nsubprocess.Popen(['sleep', '600'])\nraise KeyError('x')\n", ""),
    ],
)
def test_what_is_wrong_with_the_users_code_is_one_error(failing, tmp_path, code, said):
    (tmp_path / "words.txt").write_bytes("Müller".encode("latin-1"))
    error = failing(code)
    assert [text for text in said.split(" ... ") if text not in error] == [], error


def test_a_file_that_ends_or_hangs_the_process_is_one_error(failing):
    error = failing("import sys\n\nsys.exit(0)\n", "model.py:model")
    for text in ("called sys.exit(0)", 'model.py", line 3', '__name__ == "__main__"'):
        assert text in error
    error = failing("n = 0\nwhile True: n += 1\n", "model.py --capture-timeout 4")
    for text in ("no step was seen within 4 s", "model.py:2:", "--capture-timeout"):
        assert text in error


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
