"""`advisor show` and `advisor diff`: finished analyses, found, printed again and compared."""

import json
import os
from dataclasses import replace

import sample_analysis
from cli_answers import error_of, told
from command_runs import run_here

from placement_advisor.analysis.analysis_result import AdviceVerdict
from placement_advisor.files.output import LOG_FOLDER, OVERVIEW
from placement_advisor.report.analysis_folder import write_analysis
from placement_advisor.report.analysis_report import full_text


def written(folder, analysis, *, at=0):
    """What an analysis leaves behind, as far as the commands look at it; written at a second."""
    folder.mkdir(parents=True)
    if not analysis.options.quick:
        overview = folder / LOG_FOLDER / OVERVIEW
        overview.parent.mkdir(parents=True)
        overview.write_text("{}")
    write_analysis(analysis, folder)
    os.utime(folder / "analysis.json", (at, at))
    (folder / "report.txt").write_text(full_text(analysis))
    return folder


def quick():
    plain = sample_analysis.unmeasured()
    return replace(plain, options=replace(plain.options, run=False, quick=True))


def test_the_newest_analysis_is_shown_if_no_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "advisor-out"
    written(folder / "old", sample_analysis.sample(), at=1_000)
    written(folder / "new", sample_analysis.unmeasured(), at=3_000)
    written(folder / "middle", sample_analysis.sample(), at=2_000)
    ran = run_here("show")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Simulated for")
    assert ran.out.endswith("advisor show -v advisor-out/new\n")
    assert run_here("show", "advisor-out").out == ran.out
    assert run_here("show", "advisor-out/new").out == ran.out
    assert run_here("show", "advisor-out/old").out.startswith("Measured on")


def test_a_folder_without_a_finished_analysis_is_not_shown(tmp_path):
    folder = written(tmp_path / "b" / "a", sample_analysis.sample())
    assert "holds no finished analysis" in error_of("show", str(folder / LOG_FOLDER))[0]
    overview = tmp_path / "runs" / "mine" / LOG_FOLDER / OVERVIEW
    overview.parent.mkdir(parents=True)
    overview.write_text("{}")
    assert error_of("show", str(tmp_path / "runs")) == [
        f"advisor: error: {tmp_path}/runs: holds no finished analysis",
        "advisor: hint: `advisor analyze MODEL` writes what can be shown",
    ]


def test_a_quick_analysis_leads_nowhere_that_it_has_not(tmp_path):
    plain = quick()
    answer = replace(plain.recommendation, verdict=AdviceVerdict.STAY_SINGLE, next_run=None)
    bare = replace(plain, findings=(), recommendation=answer)
    shown = run_here("show", str(written(tmp_path / "a", bare))).out
    assert f"Next: cat {tmp_path}/a/report.md\n" in shown
    assert "advisor view" not in shown


def test_what_a_quick_analysis_has_not_is_said_with_what_to_type(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "advisor-out" / "net-quick", quick())
    folder = "advisor-out/net-quick"
    hint = f"advisor: hint: advisor show {folder} prints it; `advisor analyze MODEL` without"
    for words, shown in (
        (["view"], "nothing to look at in TensorBoard"),
        (["view", folder], "nothing to look at in TensorBoard"),
        (["report", folder], "no pictures, and so no report.html"),
    ):
        error = f"advisor: error: {folder}: text alone, as quick analyses are: {shown}"
        assert error_of(*words) == [error, f"{hint} --quick writes all of it, pictures too"]


def test_verbose_prints_all_of_it_and_colour_is_shown_where_it_is_asked_for(tmp_path, monkeypatch):
    analysis = sample_analysis.sample()
    folder = written(tmp_path / "a", analysis)
    ran = run_here("show", "--verbose", str(folder))
    view = f"In TensorBoard: advisor view {folder}\n"
    assert (ran.code, ran.out) == (0, full_text(analysis) + view)
    assert "\x1b" not in run_here("show", str(folder)).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1;32msplit: towers" in run_here("show", str(folder)).out


def test_a_file_that_is_gone_or_none_is_named(tmp_path):
    folder = written(tmp_path / "a", sample_analysis.sample())
    (folder / "report.txt").unlink()
    message, hint = error_of("show", "-v", str(folder))
    assert message.endswith("report.txt: cannot be read: No such file or directory")
    assert "`advisor analyze` writes it" in hint
    (folder / "analysis.json").write_text("[")
    assert "analysis.json: not valid JSON" in error_of("show", str(folder))[0]


def test_a_foreign_file_drives_neither_a_terminal_nor_a_ci_system(tmp_path):
    folder = written(tmp_path / "a", sample_analysis.sample())
    evil = "\x1b[2J\n::error::forged " * 9
    path = folder / "analysis.json"
    document = json.loads(path.read_text())
    document["recommendation"] |= {"answer": evil, "deciding": [evil], "how": evil, "caveat": evil}
    document["testbed"]["description"] = evil
    document["model"]["path"] = evil
    document["candidates"][1]["name"] = document["findings"][0]["action"] = evil
    path.write_text(json.dumps(document))
    (folder / "report.txt").write_text(evil)
    for words in (("show",), ("show", "-v"), ("diff", str(folder))):
        ran = run_here(*words, str(folder))
        assert ran.code == 0, ran.err
        assert "\x1b" not in ran.out
        assert not any(line.lstrip().startswith("::") for line in ran.out.splitlines())


def test_two_analyses_are_compared_and_another_verdict_is_no_failure(tmp_path):
    plain = sample_analysis.sample()
    before = written(tmp_path / "before", plain)
    other = replace(plain, model=replace(plain.model, path="other.py"))
    after = written(tmp_path / "after", other)
    ran = run_here("diff", str(before), str(after))
    assert (ran.code, ran.err) == (0, "")
    assert "graph     file: sample_models/deepconn.py → other.py\n" in ran.out
    content = told(run_here("diff", str(before), str(after), "--json"), "difference")
    assert [change["name"] for change in content["changes"]] == ["file"]
    before = written(tmp_path / "unmeasured", sample_analysis.unmeasured())
    after = written(tmp_path / "not-applicable", sample_analysis.not_applicable())
    assert run_here("diff", str(before), str(after)).code == 0


def test_a_folder_that_cannot_be_compared_is_named(tmp_path):
    folder = written(tmp_path / "a", sample_analysis.sample())
    gone = tmp_path / "gone"
    assert error_of("diff", str(folder), str(gone))[0].endswith(f"{gone}: no such folder")
    (folder / "analysis.json").write_text('{"schema_version": 9}')
    assert "9 is newer than the 2" in error_of("diff", str(folder), str(folder))[0]
