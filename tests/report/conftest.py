import json
import math
from pathlib import Path
from unittest import mock

import pytest
import sample_analysis
from command_runs import few_rounds, run_here

from placement_advisor.measurement import invariants


@pytest.fixture
def analysis():
    return sample_analysis.sample()


@pytest.fixture(scope="session")
def browser():
    from browsers import open_browser

    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def demo(fork_server, tmp_path_factory):
    """The log directory of a real analysis of the demo's model, three candidates, few steps."""
    output = tmp_path_factory.mktemp("demo") / "deepconn"
    few = ("--rounds", "5", "--steps", "1", "--candidates", "towers,batch", "--refine", "0")
    few = (*few, "--effort", "0.01", "--batch-size", "8")  # Steps of a few milliseconds.
    model = str(Path(__file__).parents[2] / "sample_models" / "deepconn.py")
    # Other tests may make the profiled steps slower than the timed ones; then a law would be broken
    # and nothing shown beside the profile.
    with few_rounds(), mock.patch.object(invariants, "PROFILED_SLOWER", math.inf):
        ran = run_here("analyze", model, *few, "-o", str(output), "--quiet")
    assert ran.code == 0, ran.err
    candidates = json.loads((output / "analysis.json").read_text())["candidates"]
    assert [candidate["broken_laws"] for candidate in candidates] == [[]] * len(candidates)
    return output / "tensorboard"
