"""Models drawn at random load, trace and run; placed and split, they learn the same."""

import numpy as np
import pytest
from random_models import random_model

from placement_advisor.processes.calls import RemoteModule

loaded_workload = RemoteModule("loaded_workload")
random_live = RemoteModule("random_live")


def runs(child, folder, seed, needs=()):
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


# Own train_step, raw, two optimizers, subclassed, a GAN among them.
SEEDS = (1, 11, 32, 22)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_drawn_at_random_is_placed_and_split_and_learns_the_same(child, seed, tmp_path):
    found = child.call(random_live.through_all, seed, str(tmp_path))
    assert found["place"] == ""
    # Where replicas draw numbers or normalize by themselves, they learn something else.
    if not found.get("refused") and not found["own"]:
        assert found["make_parallel"] == ""
