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
CASES = {
    "dropout_mlp adam 1e-6 place": "scaled reseeded",
    "dropout_mlp adam 1e-6 batch": "one_replica averaged_twice swapped",
    "norm_convolutions sgd 1e-6 place": "dropped",
    "norm_convolutions sgd 1e-6 batch": "scaled not_exchanged share_lost",
    "norm_dropout_towers sgd 1e-6 batch": "merged_early",
    "one_batch sgd 1e-6 place": "stale",
    "one_batch adam 1e-6 batch": "stale",
    "raw_updates sgd 1e-6 place": "scaled doubled stale",
    "raw_updates sgd 1e-6 batch": "",
}


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
        (run, what): child.call(broken_runs.examine, f"{run} {what}", time_limit_s=_LIMIT_S)
        for run, mistakes in sorted(CASES.items())
        for what in (*mistakes.split(), "correct-0")
    }
    wanted = {(run, what): "verified" if what == "correct-0" else "refused" for run, what in found}
    assert {case: each["verdict"] for case, each in found.items()} == wanted
