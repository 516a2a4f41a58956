"""What the user's own code can do wrong, each really done."""

import pytest
from cli_answers import refusal

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
JUNK = """
import contextlib, os
for descriptor in range(3, 1_000):
    with contextlib.suppress(OSError):
        os.write(descriptor, b'hello, world')
"""
EATER = """
import time
eaten = []
while len(eaten) < 80:
    eaten.append(bytes([1]) * 50_000_000); time.sleep(0.01)
raise AssertionError('all eaten')
"""


@pytest.fixture
def failing(advisor, tmp_path, monkeypatch):
    """Analyses code that cannot be analysed; returns the error, after checks that hold for all."""
    monkeypatch.chdir(tmp_path)

    def run(code, words="model.py"):
        data = code if isinstance(code, bytes) else code.encode()
        (tmp_path / "model.py").write_bytes(data)
        output = tmp_path / "a" / "b"
        error = refusal(advisor("analyze", *words.split(), "-o", str(output), *QUICK))
        assert error.startswith("advisor: error: ")
        assert "placement_advisor" not in error
        assert "site-packages" not in error.partition("It last printed")[0]
        assert not (tmp_path / "a").exists()
        return error

    return run


@pytest.mark.parametrize(
    ("code", "words", "messages"),
    [
        # What is no Python.
        (bytes(range(256)) * 4, "", ["model.py: not a Python file: it holds null bytes"]),
        (
            "NAME = 'Müller'\n".encode("latin-1"),
            "",
            ["model.py:1: not valid Python: (unicode error)"],
        ),
        ("import os\n\ndef f(:\n    pass\n", "", ["model.py:3: not valid Python: invalid syntax"]),
        # What raises is shown at the user's line.
        (
            "from pathlib import Path\n\nPath('words.txt').read_text('utf-8')\n",
            "",
            ["model.py: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xfc", "line 3"],
        ),
        (
            "import keras\n\nkeras.layers.Dense(units=-3)\n",
            "",
            ["ValueError", 'model.py", line 3, in <module>'],
        ),
        (
            "import no_such_module\n",
            "",
            [
                "No module named 'no_such_module'",
                "line 1",
                "install it in the same environment as advisor",
            ],
        ),
        (
            "get_ipython().system('ls')\n",
            "",
            ["name 'get_ipython' is not defined", "delete these lines"],
        ),
        ("import torch.nn as nn\n", "", ["not of PyTorch", "`advisor profile`"]),
        (
            "class Halt(BaseException): pass\n\nraise Halt('here')\n",
            "",
            ["Halt: here", 'model.py", line 3'],
        ),
        (
            STEP.format(body="return tf.matmul(x, x)"),
            "",
            ["train_step cannot be traced", 'model.py", line 5'],
        ),
        (
            MODEL + ODD,
            "",
            [
                "odd cannot be traced",
                "LookupError: no such data",
                'model.py", line 12, in train_step',
            ],
        ),
        # What is no model, and of several the one that was meant.
        (
            "import keras\ndef f():\n    model = keras.Sequential([keras.layers.Dense(1)])\nf()\n",
            "",
            [
                "the script ran to its end without a step, and no model found in it",
                "looked first for a call of fit, a tf.function or Session.run",
            ],
        ),
        (
            "import tensorflow as tf\ninputs = tf.zeros((2, 2))\n",
            "",
            [
                "no model found",
                "tf.function named train_step, training_step or step, and a keras.Model",
            ],
        ),
        (
            "import keras\nclass Net(keras.Model):\n    pass\nmodel = Net()\n",
            "",
            [
                "model (Net) does not say what inputs it takes",
                "`dataset` (a tf.data.Dataset) or `inputs`",
            ],
        ),
        (
            MODEL.replace("dataset", "data") + "model = first\ninputs = object()\n",
            "",
            ["`inputs` is not made of tensors"],
        ),
        (MODEL, "", ["several models: first, second", "model.py:first"]),
        (MODEL, "model.py:third", ["nothing is called 'third'", "first", "second"]),
        (MODEL, "model.py:dataset", ["'dataset' is a"]),
        (
            MODEL.replace('first.compile(loss="mse")\n', ""),
            "model.py:first --mode train",
            ["first is not compiled"],
        ),
        # What ends, hangs or harms the process.
        (
            "import sys\n\nsys.exit(0)\n",
            "model.py:model",
            ["called sys.exit(0)", 'model.py", line 3', '__name__ == "__main__"'],
        ),
        (
            "import os\nprint('so far so good')\nos._exit(7)\n",
            "",
            ["model.py: loading failed: loader exited with status 7", "so far so good"],
        ),
        (
            "import ctypes\n\n\ndef crash():\n    ctypes.string_at(0)\n\n\ncrash()\n",
            "",
            ["model.py:5: loading failed: loader was killed by SIGSEGV"],
        ),
        (
            "n = 0\nwhile True: n += 1\n",
            "model.py --capture-timeout 4",
            ["no step was seen within 4 s", "model.py:2:", "--capture-timeout"],
        ),
        (
            STEP.format(body="import time; time.sleep(60)"),
            "model.py --time-limit 2",
            ["tracing failed: loader gave no answer within 2 s"],
        ),
        (EATER, "", ["model.py:5: loading failed: loader used more than 2.0 GB", "smaller"]),
        # The fixture looks for what is left.
        ("import subprocess\nsubprocess.Popen(['sleep', '600'])\nraise KeyError('x')\n", "", []),
        (JUNK, "", ["loading failed: loader gave an answer that cannot be read (OSError"]),
    ],
)
def test_what_is_wrong_with_the_users_code_is_one_error(
    failing, tmp_path, monkeypatch, code, words, messages
):
    # A limit of 2 GB, so that the machine that tests is in no danger.
    monkeypatch.setattr(children, "available_memory_bytes", lambda: 2_500_000_000)
    (tmp_path / "words.txt").write_bytes("Müller".encode("latin-1"))
    error = failing(code, words or "model.py")
    assert [message for message in messages if message not in error] == [], error


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


def test_of_several_models_one_can_be_chosen(advisor, write_model, tmp_path):
    model = write_model(MODEL)
    ran = advisor("analyze", f"{model}:second", "-o", str(tmp_path / "out"), *QUICK)
    assert ran.code == 0, ran.err
