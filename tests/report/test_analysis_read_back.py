import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import sample_analysis
from matplotlib import pyplot
from sample_analysis import CAPTURED, written

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.errors import AdvisorError
from placement_advisor.files.contract import plain
from placement_advisor.measurement.measurement import FailureKind
from placement_advisor.report.analysis_folder import write_analysis
from placement_advisor.report.find_analysis import read_analysis
from placement_advisor.report.python_report import Report
from placement_advisor.report.split_plan import analysis_of, keep_training, plan_of_analysis
from placement_advisor.results.analysis import Analysis as Published
from placement_advisor.results.analysis import Training
from placement_advisor.tf.training.trial import SPLIT_PLAN, Bill, SplitPlan

BATCH = {"family": "batch", "samples": [20, 12], "placement_file": None}


def edited(folder, name, **changes):
    """Change a candidate in what was written, or add one."""
    path = folder / "analysis.json"
    document = json.loads(path.read_text())
    rows = {row["name"]: row for row in document["candidates"]}
    rows[name] = {**rows.get(name, rows["towers"]), "name": name, **changes}
    document["candidates"] = list(rows.values())
    path.write_text(json.dumps(document))
    return folder


def plan(folder, candidate=None, *, on_cpus=False):
    found = plan_of_analysis(folder, candidate, on_cpus=on_cpus)
    assert isinstance(found, SplitPlan), found
    return found


def test_the_split_that_is_recommended_is_the_plan_also_in_another_process(tmp_path):
    folder = written(tmp_path / "out")
    found = plan(folder)
    assert (found.label, found.samples, found.step) == ("towers", None, "train.py:9")
    assert found.placement == (folder / "placements" / "towers.json").resolve()
    assert plan(folder, "single").placement == found.single
    folder = edited(folder, "batch", **BATCH)
    for found in (plan(folder), plan(folder, "batch")):
        assert SPLIT_PLAN.validate_json(SPLIT_PLAN.dump_json(found)) == found
    found = plan(edited(folder, "batch", **BATCH), "batch")
    assert found.groups() == [["worker:0"], ["worker:1"]]
    pairs = replace(found, devices=tuple("abcd"), placement=tmp_path / "batch-towers.json")
    assert pairs.groups() == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("verdict", [AdviceVerdict.STAY_SINGLE, AdviceVerdict.CANNOT_TELL])
def test_a_script_that_is_to_stay_as_it_is_has_no_plan_but_one_that_is_asked_for(tmp_path, verdict):
    folder = written(tmp_path / "out", verdict=verdict, answer="stay as you are")
    assert plan_of_analysis(folder, None, on_cpus=False) == "stay as you are"
    assert plan(folder, "towers").label == "towers"
    if verdict is AdviceVerdict.STAY_SINGLE:  # One device is faster than a split of its own.
        assert plan(edited(folder, "as-written", family="as-written")).label == "single"


def test_a_verdict_of_stand_ins_or_of_other_hardware_is_none_of_this_machine(tmp_path):
    folder = written(tmp_path / "stand-ins", stand_in=True)
    why = plan_of_analysis(folder, None, on_cpus=False)
    assert why.endswith("stand in for others; --devices 2 tries it on this machine's CPU")
    assert plan(folder, on_cpus=True).label == "towers"
    elsewhere = written(tmp_path / "elsewhere")
    path = elsewhere / "analysis.json"
    path.write_text(path.read_text().replace('"hardware": null', '"hardware": "2xV100-NVLink"'))
    why = plan_of_analysis(elsewhere, None, on_cpus=False)
    assert why == "its verdict is simulated, for 2xV100-NVLink"


def test_mirrored_is_the_script_s_own_strategy_or_takes_one_of_keras_methods(tmp_path):
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


def test_the_newest_analysis_of_a_script_is_found_among_those_of_others(tmp_path):
    root = tmp_path / "advisor-out"
    with pytest.raises(AdvisorError, match="holds no analysis of it"):
        analysis_of("train.py", root)
    older, newer = written(root / "train"), written(root / "train-batch64")
    written(root / "other", path="other.py")
    os.utime(newer / "analysis.json", (0, 0))
    for at, each in enumerate((older, newer, older), 1):
        os.utime(each / "analysis.json", (at, at))
        assert analysis_of("./train.py", root) == each.resolve()


def test_an_analysis_keeps_the_last_training(tmp_path):
    folder = written(tmp_path / "out")
    before = json.loads((folder / "analysis.json").read_text())
    for steps in (3, 4):
        trained = Training.of(Bill(label="towers", is_tried=False, placed_steps=steps))
        keep_training(folder, trained)
    document = json.loads((folder / "analysis.json").read_text())
    assert document == {**before, "training": plain(trained)}
    training = document["training"]
    assert (training["candidate"], training["placed_steps"]) == ("towers", 4)
    assert [path.name for path in folder.glob(".*")] == []


def test_what_is_written_is_read_back_and_a_file_that_is_not_there_is_named(analysis, tmp_path):
    write_analysis(analysis, tmp_path)
    found = read_analysis(tmp_path / "analysis.json")
    assert found == Published.of(analysis)
    single, towers, alternating = found.candidates
    assert single.measured_step.step_ns == 51_000_000
    assert towers.step("measured") == towers.measured_step
    assert alternating.failure.kind is FailureKind.CRASHED
    assert alternating.step("simulated") is None
    with pytest.raises(AdvisorError, match="cannot be read: No such file"):
        read_analysis(tmp_path / "gone.json")


def test_parts_of_a_step_are_those_of_the_device_that_computes_most(analysis):
    towers = Published.of(analysis).candidates[1]
    parts = towers.predicted_step.parts
    # worker:0 computes 2 + 13 + 0.5 + 11 + 1.5 ms of the 30.1 ms; it waits from 15.3 to 15.7 ms and
    # from 27.5 to 28.6 ms.
    assert (parts.device, parts.compute_ns, parts.copies_ns) == ("worker:0", 28_000_000, 1_500_000)
    assert parts.idle_ns == 600_000
    # Under the profiler the step is 4 % slower.
    parts = towers.measured_step.parts
    assert parts.compute_ns == 29_120_000
    told_ns = parts.compute_ns + parts.copies_ns + parts.idle_ns
    assert told_ns == pytest.approx(30_100_000 * 1.04, rel=1e-6)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("schema_version",), 3, "schema_version: 3 is newer than the 2 that this advisor reads"),
        (("recommendation", "verdict"), "maybe", "'maybe' is not stay-single, split"),
        (("candidates", 1, "measured", "ratio_to_single", "ci95"), [2.0, 1.0], "ratio_to_single"),
        (("findings", 0, "saving_ns"), None, "a part of its saving is missing"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_place(analysis, tmp_path, path, value, says):
    document = sample_analysis.as_json(analysis)
    damaged = document
    for step in path[:-1]:
        damaged = damaged[step]
    damaged[path[-1]] = value
    file = tmp_path / "analysis.json"
    file.write_text(json.dumps(document))
    with pytest.raises(AdvisorError) as caught:
        read_analysis(file)
    assert caught.value.message.startswith(f"{file}: ")
    assert says in caught.value.message


@pytest.fixture
def report():
    return Report(sample_analysis.sample(), Path("out"))


def test_the_answer_takes_a_few_lines_and_candidates_are_rows_of_plain_values(report):
    text = repr(report)
    assert text.startswith(f"{report.analysis.recommendation.headline}\n")
    assert len(text.splitlines()) <= 5
    assert len(repr(report.analysis)) < 1_000
    assert report.verdict == report.analysis.recommendation.verdict
    rows = report.candidates
    assert [row["candidate"] for row in rows] == [c.name for c in report.analysis.candidates]
    assert len({tuple(row) for row in rows}) == 1
    kinds = {type(value) for row in rows for value in row.values()}
    assert kinds <= {str, int, float, type(None)}
    ran = next(row for row in rows if row["speedup_basis"] == "measured")
    assert ran["speedup_low"] <= ran["speedup"] <= ran["speedup_high"]
    assert (rows[0]["speedup"], rows[0]["speedup_basis"]) == (1, "baseline")
    rows = Report(sample_analysis.unmeasured(), Path("out")).candidates
    assert {row["measured_step_ns"] for row in rows} == {None}
    assert {row["speedup_basis"] for row in rows} <= {"baseline", "simulated", None}


def test_a_notebook_shows_answer_table_and_picture_and_no_markup_of_models():
    html = Report(sample_analysis.hostile(), Path("out"))._repr_html_()
    assert html.count("<table>") == 1
    assert "data:image/png;base64,iVBOR" in html
    assert "<script" not in html


def test_pictures_are_axes_that_pyplot_knows_or_are_said_not_to_be_there(report):
    axes = [report.plot_timeline(), report.plot_timeline("single"), report.plot_comparison()]
    assert all(pyplot.fignum_exists(ax.figure.number) for ax in axes)
    pyplot.close("all")
    with pytest.raises(AdvisorError, match="no candidate 'none'; there are single, "):
        report.plot_timeline("none")
    with pytest.raises(AdvisorError, match="there is no break-even"):
        Report(sample_analysis.unmeasured(), Path("out")).plot_break_even()
