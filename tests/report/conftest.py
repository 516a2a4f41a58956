from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sample_analysis
from command_runs import few_rounds, run_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from placement_advisor.analysis.analysis_result import Analysis

_ANALYSES = 3


@pytest.fixture
def analysis() -> Analysis:
    return sample_analysis.sample()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from browsers import open_browser

    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def demo(fork_server: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a real analysis of the demo's model, three candidates, few steps.

    Where other work made the profiled steps slower than the timed ones, a profile breaks a law and
    nothing is shown beside it: that analysis is made anew, twice at most.
    """
    for _ in range(_ANALYSES):
        output = _analysis_of_demo(tmp_path_factory.mktemp("demo"))
        candidates = json.loads((output / "analysis.json").read_text())["candidates"]
        if not any(candidate["broken_laws"] for candidate in candidates):
            return output / "tensorboard"
    pytest.fail(f"in {_ANALYSES} analyses a profile broke a law: is the machine busy?")


def _analysis_of_demo(folder: Path) -> Path:
    output = folder / "deepconn"
    few = ("--rounds", "5", "--steps", "1", "--candidates", "towers,batch", "--effort", "0.1")
    model = str(Path(__file__).parents[2] / "sample_models" / "deepconn.py")
    with few_rounds():
        ran = run_here("analyze", model, *few, "-o", str(output), "--quiet")
    assert ran.code == 0, ran.err
    return output
