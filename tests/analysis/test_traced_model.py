"""How long loading may take, of a script and of what is no script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from placement_advisor.analysis.tracing import load_model
from placement_advisor.errors import ModelError
from placement_advisor.processes.calls import CallFailure, FailureCause
from placement_advisor.testbed.benchmark import SilentProgress
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from pathlib import Path


def late(path: Path) -> tuple[float, str]:
    """Return the limit that a model has, and what is said where it is over."""
    path.touch()
    limits: list[float] = []

    def call(*_: Any, time_limit_s: float) -> CallFailure:
        limits.append(time_limit_s)
        message = f"loader gave no answer within {time_limit_s:g} s"
        return CallFailure(cause=FailureCause.TIMED_OUT, message=message)

    loader: Any = SimpleNamespace(call=call, printed="")
    source = ModelSource(path=str(path), time_limit_s=20, capture_timeout_s=600)
    with pytest.raises(ModelError) as error:
        load_model(source, loader, SilentProgress())
    (limit_s,) = limits
    return limit_s, f"{error.value.message}; {error.value.hint}"


def test_a_script_may_run_for_the_capture_timeout(tmp_path: Path):
    limit_s, said = late(tmp_path / "train.py")
    assert limit_s == 600
    assert "no step was seen within 600 s" in said
    assert "--capture-timeout" in said


@pytest.mark.parametrize("name", ["model.keras", "model.pb"])
def test_a_model_that_is_no_script_is_loaded_within_the_time_limit(tmp_path: Path, name: str):
    limit_s, said = late(tmp_path / name)
    assert limit_s == 20
    assert "loading failed: loader gave no answer within 20 s" in said
    assert "--time-limit" in said
