"""The explicit contract: what it accepts, and that it costs no import of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from placement_advisor import Workload


def step(value: float) -> float:
    return value


def test_a_workload_is_training_at_the_size_of_its_inputs_unless_it_says_otherwise() -> None:
    workload = Workload(step=step, inputs=(1.0,))
    assert (workload.mode, workload.batch_size) == ("train", None)


@pytest.mark.parametrize(
    ("wrong", "error", "reason"),
    [
        ({"step": 3}, TypeError, "step is a int, not a function"),
        ({"mode": "eval"}, ValueError, "mode is 'eval', not one of 'train', 'infer'"),
        ({"batch_size": 0}, ValueError, "batch_size is 0, not at least 1"),
    ],
)
def test_a_workload_refuses(wrong: dict[str, Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        Workload(**{"step": step, "inputs": (), **wrong})


def test_a_workload_is_made_without_importing_tensorflow() -> None:
    code = (
        "import sys, placement_advisor\n"
        "placement_advisor.Workload(step=print, inputs=())\n"
        "print([m for m in ('tensorflow', 'keras', 'networkx', 'numpy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
