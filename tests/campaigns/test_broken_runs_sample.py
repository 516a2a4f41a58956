"""A sample of the matrix of broken runs: each breakage caught, and correct runs verified."""

import sys
from pathlib import Path

import pytest

from placement_advisor.processes import children
from placement_advisor.processes.calls import RemoteModule
from placement_advisor.processes.children import Child

broken_runs = RemoteModule("broken_runs")
_LIMIT_S = 600.0
# Steps with statistics, with draws, and with neither, at rates that change variables by less than
# a digit.
BROKEN = [
    "dropout_mlp adam 1e-6 place scaled",
    "dropout_mlp adam 1e-6 place reseeded",
    "dropout_mlp adam 1e-6 batch one_replica",
    "dropout_mlp adam 1e-6 batch averaged_twice",
    "norm_convolutions sgd 1e-6 place dropped",
    "norm_convolutions sgd 1e-6 batch scaled",
    "norm_convolutions sgd 1e-6 batch not_exchanged",
    "norm_convolutions sgd 1e-6 batch share_lost",
    "norm_dropout_towers sgd 1e-6 batch merged_early",
    "one_batch sgd 1e-6 place stale",
    "one_batch adam 1e-6 batch stale",
    "raw_updates sgd 1e-6 place scaled",
    "raw_updates sgd 1e-6 place doubled",
    "raw_updates sgd 1e-6 place stale",
    "dropout_mlp adam 1e-6 batch swapped",
]
CORRECT = [
    "dropout_mlp adam 1e-6 place correct-0",
    "dropout_mlp adam 1e-6 batch correct-0",
    "norm_convolutions sgd 1e-6 place correct-0",
    "norm_convolutions sgd 1e-6 batch correct-0",
    "norm_dropout_towers sgd 1e-6 batch correct-0",
    "one_batch sgd 1e-6 place correct-0",
    "one_batch adam 1e-6 batch correct-0",
    "raw_updates sgd 1e-6 place correct-0",
    "raw_updates sgd 1e-6 batch correct-0",
]


@pytest.fixture(scope="module")
def child():
    children.preload()
    # Campaigns say what machine they ran on, as benchmarks do.
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    with Child("broken") as own:
        yield own


@pytest.mark.campaign
def test_every_broken_run_is_caught_and_every_correct_one_is_verified(child):
    found = {
        case: child.call(broken_runs.examine, case, time_limit_s=_LIMIT_S)
        for case in sorted(BROKEN + CORRECT)
    }
    assert {case: found[case]["verdict"] for case in BROKEN} == dict.fromkeys(BROKEN, "refused")
    assert {case: found[case]["verdict"] for case in CORRECT} == dict.fromkeys(CORRECT, "verified")
