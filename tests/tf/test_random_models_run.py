"""Models drawn at random load, trace and run: a step's results are finite numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from random_models import random_model

from placement_advisor.processes.calls import RemoteModule

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from placement_advisor.processes.children import Child

loaded_workload = RemoteModule("loaded_workload")


def runs(child: Child, folder: Path, seed: int, needs: Collection[str] = ()) -> None:
    model = random_model(seed, needs=needs)
    path = folder / f"model_{seed}.py"
    path.write_text(model.text)
    found = child.call(loaded_workload.trace, str(path), {})
    assert isinstance(found, dict), f"seed {seed}: {found}\n{model.text}"
    assert found["mode"] == ("train" if model.training else "infer")
    assert found["batch_size"] == model.batch_size
    assert found["returned"]
    assert all(np.isfinite(result).all() for result in found["returned"])


@pytest.mark.parametrize(
    "needs",
    [
        {"functional", "several_outputs", "training"},
        pytest.param({"gan"}, marks=pytest.mark.slow),
        {"two_optimizers", "cross_stitched"},
        {"raw", "loop_in_graph", "adam", "clipped"},
        {"raw", "batch_norm", "conv", "training"},
        {"subclassed", "inference", "several_inputs"},
        pytest.param({"own_train_step", "experts"}, marks=pytest.mark.slow),
    ],
    ids=lambda needs: " ".join(sorted(needs)),
)
def test_a_model_of_each_kind_runs(child, tmp_path, needs):
    runs(child, tmp_path, 3, needs)


@pytest.mark.campaign
def test_many_models_run(child, tmp_path):
    for seed in range(100, 160):
        runs(child, tmp_path, seed)
