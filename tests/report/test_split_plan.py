"""What a training is to be run with, by an analysis."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import sample_analysis
from sample_analysis import CAPTURED

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.errors import AdvisorError
from placement_advisor.report.analysis_folder import write_analysis
from placement_advisor.report.split_plan import (
    analysis_of,
    keep_training,
    plan_of_analysis,
)
from placement_advisor.results.analysis import Training
from placement_advisor.tf.training.trial import SPLIT_PLAN, Bill, SplitPlan

if TYPE_CHECKING:
    from pathlib import Path


BATCH: dict[str, Any] = {"family": "batch", "samples": [20, 12], "placement_file": None}


def written(folder: Path, path: str = "train.py", **changes: Any) -> Path:
    """Write an analysis on devices of its own; changes are those of its answer."""
    plain = sample_analysis.sample()
    analysis = replace(
        plain,
        model=replace(plain.model, path=path, captured=changes.pop("captured", CAPTURED)),
        testbed=replace(plain.testbed, stand_in=changes.pop("stand_in", False)),
        recommendation=replace(plain.recommendation, **changes),
    )
    folder.mkdir(parents=True)
    write_analysis(analysis, folder)
    return folder


def edited(folder: Path, name: str, **changes: Any) -> Path:
    """Change a candidate in what was written, or add one."""
    path = folder / "analysis.json"
    document = json.loads(path.read_text())
    rows = {row["name"]: row for row in document["candidates"]}
    rows[name] = {**rows.get(name, rows["towers"]), "name": name, **changes}
    document["candidates"] = list(rows.values())
    path.write_text(json.dumps(document))
    return folder


def plan(folder: Path, candidate: str | None = None, *, on_cpus: bool = False) -> SplitPlan:
    found = plan_of_analysis(folder, candidate, on_cpus=on_cpus)
    assert isinstance(found, SplitPlan), found
    return found


def test_the_split_that_is_recommended_is_the_plan(tmp_path: Path) -> None:
    folder = written(tmp_path / "out")
    found = plan(folder)
    assert (found.label, found.samples, found.step) == ("towers", None, "train.py:9")
    assert found.placement == (folder / "placements" / "towers.json").resolve()
    assert plan(folder, "single").placement == found.single


def test_a_plan_is_the_same_in_another_process(tmp_path: Path) -> None:
    folder = edited(written(tmp_path / "out"), "batch", **BATCH)
    for found in (plan(folder), plan(folder, "batch")):
        assert SPLIT_PLAN.validate_json(SPLIT_PLAN.dump_json(found)) == found


def test_shares_of_the_batch_go_to_a_device_each_or_to_several_together(tmp_path: Path) -> None:
    found = plan(edited(written(tmp_path / "out"), "batch", **BATCH), "batch")
    assert found.groups() == [["worker:0"], ["worker:1"]]
    pairs = replace(found, devices=tuple("abcd"), placement=tmp_path / "batch-towers.json")
    assert pairs.groups() == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("verdict", [AdviceVerdict.STAY_SINGLE, AdviceVerdict.CANNOT_TELL])
def test_a_script_that_is_to_stay_as_it_is_has_no_plan_but_one_that_is_asked_for(
    tmp_path: Path, verdict: AdviceVerdict
) -> None:
    folder = written(tmp_path / "out", verdict=verdict, answer="stay as you are")
    assert plan_of_analysis(folder, None, on_cpus=False) == "stay as you are"
    assert plan(folder, "towers").label == "towers"
    if verdict is AdviceVerdict.STAY_SINGLE:  # One device is faster than a split of its own.
        assert plan(edited(folder, "as-written", family="as-written")).label == "single"


def test_a_verdict_of_stand_ins_or_of_other_hardware_is_none_of_this_machine(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path / "stand-ins", stand_in=True)
    why = plan_of_analysis(folder, None, on_cpus=False)
    assert isinstance(why, str)
    assert why.endswith("stand in for others; --devices 2 tries it on this machine's CPU")
    assert plan(folder, on_cpus=True).label == "towers"
    elsewhere = written(tmp_path / "elsewhere")
    path = elsewhere / "analysis.json"
    document = json.loads(path.read_text())
    document["options"]["hardware"] = "2xV100-NVLink"
    path.write_text(json.dumps(document))
    why = plan_of_analysis(elsewhere, None, on_cpus=False)
    assert why == "its verdict is simulated, for 2xV100-NVLink"


def test_mirrored_is_the_script_s_own_strategy_or_takes_one_of_keras_methods(
    tmp_path: Path,
) -> None:
    changes = BATCH | {"family": "mirrored", "samples": [16, 16]}
    fitted = edited(written(tmp_path / "fit"), "mirrored", **changes)
    assert plan(fitted, "mirrored").samples == (16, 16)
    own = written(tmp_path / "own", captured=replace(CAPTURED, is_replica=True))
    why = plan_of_analysis(edited(own, "mirrored", **changes), "mirrored", on_cpus=False)
    assert why == "mirrored is what its own strategy does"
    alone = plan_of_analysis(own, None, on_cpus=False)
    assert alone == "it trains under a strategy of its own, which a split would replace"
    assert plan(own, "towers").label == "towers"
    loop = written(tmp_path / "loop", captured=replace(CAPTURED, call="step"))
    with pytest.raises(AdvisorError, match=r"hands each replica its share"):
        plan(edited(loop, "mirrored", **changes), "mirrored")


def test_the_newest_analysis_of_a_script_is_found_among_those_of_others(tmp_path: Path) -> None:
    root = tmp_path / "advisor-out"
    with pytest.raises(AdvisorError, match="holds no analysis of it"):
        analysis_of("train.py", root)
    older, newer = written(root / "train"), written(root / "train-batch64")
    written(root / "other", path="other.py")
    os.utime(newer / "analysis.json", (0, 0))
    for at, each in enumerate((older, newer, older), 1):
        os.utime(each / "analysis.json", (at, at))
        assert analysis_of("./train.py", root) == each.resolve()


def test_an_analysis_keeps_the_last_training(tmp_path: Path) -> None:
    folder = written(tmp_path / "out")
    before = json.loads((folder / "analysis.json").read_text())
    for steps in (3, 4):
        keep_training(folder, Training.of(Bill(label="towers", is_tried=False, placed_steps=steps)))
    training = {
        "candidate": "towers",
        "why_not": None,
        "ready_s": 0.0,
        "placed_steps": 4,
        "own_steps": 0,
        "trial": None,
    }
    document = json.loads((folder / "analysis.json").read_text())
    assert document == {**before, "training": training}
    assert [path.name for path in folder.glob(".*")] == []
