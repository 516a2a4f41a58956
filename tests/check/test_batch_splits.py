"""Splits of the batch are locked and checked like other placements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from placement_advisor.check.check_models import CheckOptions, check_models
from placement_advisor.check.check_result import ModelResult, Status
from placement_advisor.check.config import read_config
from placement_advisor.check.problem import Code

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """\
import tensorflow as tf

BATCH, WIDTH = 64, 64
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input([32]),
        tf.keras.layers.Dense(WIDTH, activation="relu", name="hidden"),
        tf.keras.layers.Dense(1, name="score"),
    ]
)
model.compile(optimizer="sgd", loss="mse")
dataset = tf.data.Dataset.from_tensors((tf.zeros([BATCH, 32]), tf.zeros([BATCH, 1])))
"""


class Silent:
    def working(self, what: str, done: int, total: int, candidate: str = "") -> None: ...

    def note(self, what: str) -> None: ...


def checked(
    root: Path, placement: str, hardware: str = "2xT4", model: str = MODEL, **options: bool
) -> ModelResult:
    (root / "model.py").write_text(model)
    (root / "pyproject.toml").write_text(
        f'[tool.advisor]\nhardware = "{hardware}"\n[[tool.advisor.models]]\npath = "model.py"\n'
        f'mode = "train"\nplacement = "{placement}"\n'
    )
    config = read_config(root / "pyproject.toml")
    (result,) = check_models(config, CheckOptions(**options), Silent()).results
    return result


@pytest.mark.parametrize("placement", ["batch", "mirrored"])
def test_a_split_of_the_batch_is_locked_and_checked(tmp_path: Path, placement: str) -> None:
    locked = checked(tmp_path, placement, update=True)
    assert locked.after is not None, locked.error
    assert {"replica_0/hidden", "replica_1/hidden"} <= {
        layer.replace("sequential/", "") for layer in locked.after.layers
    }
    same = checked(tmp_path, placement, measure=True)
    assert same.status is Status.INCONCLUSIVE, same.problems
    assert same.notes == (
        "not measured: advisor analyze runs splits of the batch, a check does not",
    )
    worse = checked(tmp_path, placement, model=MODEL.replace("64, 64", "64, 65_536"))
    assert worse.status is Status.FAILED
    assert Code.SLOWER in {code for problem in worse.problems for code in problem.codes}


@pytest.mark.parametrize(
    ("placement", "hardware", "error"),
    [
        ("mirrored", "3xT4", "cannot be shared evenly by 3"),
        ("batch", "T4", "the hardware has one"),
    ],
)
def test_a_batch_that_cannot_be_split_so_is_an_error(
    tmp_path: Path, placement: str, hardware: str, error: str
) -> None:
    result = checked(tmp_path, placement, hardware)
    assert result.status is Status.COULD_NOT_RUN
    assert error in (result.error or "")
    assert result.hint
