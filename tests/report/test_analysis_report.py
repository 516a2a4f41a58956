"""An analysis in full, as text and as Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sample_analysis
from sample_analysis import published, ranged, unreliable
from simulated_steps import towers_graph

from placement_advisor.measurement.measurement import BrokenLaw, Law
from placement_advisor.report.analysis.analysis_report import full_text, render_markdown
from placement_advisor.report.analysis.screen import screen
from placement_advisor.report.analysis_folder import write_reports
from placement_advisor.report.pictures.layer_map import layer_map
from placement_advisor.report.tensorboard.tab import Overview

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.simulator.events import Transfer

GOLDEN = Path(__file__).parent / "golden"
ESCAPE = "\x1b"


@pytest.mark.parametrize("name", ["sample", "unmeasured", "elsewhere"])
def test_both_reports_are_the_golden_ones(name: str) -> None:
    analysis = getattr(sample_analysis, name)()
    assert full_text(analysis) == (GOLDEN / f"full_{name}.txt").read_text(encoding="utf-8")
    assert render_markdown(analysis) == (GOLDEN / f"report_{name}.md").read_text(encoding="utf-8")


def test_names_from_models_are_shown_not_interpreted(hostile: Analysis) -> None:
    text, page = full_text(hostile), render_markdown(hostile)
    assert text.count(sample_analysis.HOSTILE) >= 3
    assert ESCAPE not in text + page
    assert "<img" not in page
    assert r"&lt;img onerror=x&gt;\|\[bold\]" in page
    assert r"\`code\`" in page


def test_every_simulated_speed_up_has_its_range() -> None:
    # 1 / 0.8 to 1 / 0.5.
    assert full_text(ranged()).count("1.25–2.00") == 2
    assert render_markdown(ranged()).count("1.25–2.00") == 2


def test_a_candidate_that_does_not_apply_is_shown_as_such_in_its_row(
    not_applicable: Analysis,
) -> None:
    text, page = " ".join(full_text(not_applicable).split()), render_markdown(not_applicable)
    assert "not applicable –" in text
    assert "| towers | – | not applicable | – | – |" in page
    assert all("towers: not applicable: the model has one tower." in told for told in (text, page))


def test_the_first_line_is_the_verdict_unbroken(analysis: Analysis) -> None:
    assert len(analysis.recommendation.headline) > 80
    assert full_text(analysis).splitlines()[0] == analysis.recommendation.headline


def test_every_other_line_has_80_columns_at_most(analysis: Analysis) -> None:
    assert max(map(len, full_text(analysis).splitlines()[1:])) <= 80


def test_long_failures_wrap_and_are_all_there(analysis: Analysis) -> None:
    words = [f"word{number}" for number in range(40)]
    broken = analysis.candidates[2]
    assert broken.failure is not None
    failed = replace(broken, failure=replace(broken.failure, message=" ".join(words)))
    text = full_text(replace(analysis, candidates=(*analysis.candidates[:2], failed)))
    assert all(word in text for word in words)
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_what_a_failure_says_in_full_is_in_a_file_that_all_reports_name(
    analysis: Analysis, tmp_path: Path
) -> None:
    single, towers, broken = analysis.candidates
    assert broken.failure is not None
    failed = replace(broken, failure=replace(broken.failure, in_full="word\n" * 900))
    of = replace(analysis, candidates=(single, towers, failed, replace(broken, name="searched")))
    write_reports(of, tmp_path)
    told = "alternating: crashed: worker:1 was ended by SIGKILL in round 3"
    where = "(in full: failures/alternating.txt)"
    text = " ".join((tmp_path / "report.txt").read_text(encoding="utf-8").split())
    assert f"{told} {where}." in text
    assert " failures/ errors in full" in text
    assert f"- {told} {where}" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (
        sample_analysis.as_json(of)["candidates"][2]["failure"]["in_full"]
        == "failures/alternating.txt"
    )
    assert [file.name for file in (tmp_path / "failures").iterdir()] == ["alternating.txt"]
    assert (tmp_path / "failures" / "alternating.txt").read_text() == "word\n" * 900 + "\n"
    assert "failures/" not in full_text(analysis)
    # Of several that failed for the same reason it is said once.
    same = replace(analysis, candidates=(single, broken, replace(broken, name="pipeline")))
    assert "alternating and pipeline: crashed: worker:1 was ended" in full_text(same)


def test_a_long_name_is_broken_at_a_hyphen_and_takes_no_room_from_figures(
    analysis: Analysis,
) -> None:
    long = replace(analysis.candidates[1], name="towers-forward-only")
    table = full_text(replace(analysis, candidates=(*analysis.candidates, long)))
    rows = [line.split()[0] for line in table.splitlines() if line.startswith(("towers-", "only"))]
    assert rows == ["towers-forward-", "only"]
    assert table.count("worker:1 8.20 MB") == 2


def test_nothing_is_called_measured_when_nothing_ran(unmeasured: Analysis) -> None:
    text, page = full_text(unmeasured), render_markdown(unmeasured)
    assert "(simulated)" in text
    assert text.count("measured") == 1
    assert "Nothing was measured (--no-run: no step was executed)." in text
    heading = next(line for line in page.splitlines() if line.startswith("| candidate"))
    assert "measured" not in heading
    assert "simulated" in heading
    assert "## Prediction against measurement" not in page
    assert "## Copies against compute, measured" not in page
    assert "tensorboard" not in text + page


def test_a_speed_up_predicted_after_runs_stands_below_the_one_from_before() -> None:
    shown = full_text(sample_analysis.joined())
    before, after = "(1.25–2.00)", "after 2 runs 1.56×"
    assert 0 < shown.index(before) < shown.index(after)


def test_of_a_profile_that_breaks_a_law_nothing_is_shown() -> None:
    text = " ".join(full_text(unreliable()).split())
    assert "no profile to" in text
    # The simulated step has 1.50 ms.
    assert "1.56 ms exposed" in " ".join(full_text(sample_analysis.sample()).split())
    assert "1.56 ms exposed" not in text
    assert "single: compute 100 %" in text
    assert "towers: compute" not in text
    page = render_markdown(unreliable())
    assert "no profile to rely on" in page
    assert "**towers (simulated), from row to column**" in page
    assert "**towers: compute" not in page
    assert "**single: compute" in page
    assert "| compute worker:1 | 24.0 ms | ? | – |" in page


def test_where_rules_found_nothing_by_a_profile_not_to_rely_on_every_report_says_so() -> None:
    plain = replace(sample_analysis.sample(), findings=())
    single, *others = plain.candidates
    broken = BrokenLaw(law=Law.PARTS_ADD_UP, what="parts of its step do not add up to it")
    unsure = replace(plain, candidates=(replace(single, broken_laws=(broken,)), *others))
    for of, says in (
        (plain, "none: no rule has anything to say of this step"),
        (unsure, "none, but single has no profile to rely on: a rule that goes by times of ops"),
        (replace(sample_analysis.unmeasured(), findings=()), "none: no rule has anything to say"),
    ):
        on_screen = "".join(line.text for line in screen(published(of), Path("out"), 300))
        for text in (full_text(of), render_markdown(of), on_screen):
            assert says in " ".join(text.split())
        assert Overview.of(of, layer_map(towers_graph())).no_findings.startswith(says)


def test_peak_memory_of_every_device_is_shown(four_devices: Analysis) -> None:
    text = full_text(four_devices)
    assert all(f"worker:{number} 12.0 MB" in text for number in range(4))


def _if_split(analysis: Analysis) -> Analysis:
    (finding,) = analysis.findings
    return replace(analysis, findings=(replace(finding, is_hypothetical=True, saving=None),))


def test_findings_of_a_split_that_is_not_recommended_stand_apart_and_save_nothing(
    analysis: Analysis,
) -> None:
    text = " ".join(full_text(_if_split(analysis)).split())
    assert "Findings, most valuable first none: no rule" in text
    told = "Of splits that are not recommended: PA201 step-waits-for-transfers: the gradient"
    assert told in text
    assert "saves:" not in text
    page = render_markdown(_if_split(analysis))
    assert "Of splits that are not recommended:\n\n**PA201" in page
    # The verdict of this one is to split.
    assert "all the same" not in text + page
    assert "saves:" not in page
    assert sample_analysis.as_json(_if_split(analysis))["findings"][0]["hypothetical"] is True


def test_every_row_of_a_table_has_as_many_cells_as_its_heading(hostile: Analysis) -> None:
    cells = None
    for line in render_markdown(hostile).splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        count = line.replace(r"\|", "").count("|")
        assert cells in (None, count), line
        cells = count


def test_copies_of_a_candidate_that_failed_are_labelled_simulated(analysis: Analysis) -> None:
    report = render_markdown(analysis)
    assert "**towers (measured), from row to column**" in report
    assert "**alternating (simulated), from row to column**" in report


def test_simulated_copies_of_unknown_size_are_neither_nothing_nor_doubt_the_others(
    analysis: Analysis,
) -> None:
    *others, split = analysis.candidates
    assert split.predicted is not None
    lookup, *rest = split.predicted.transfers
    unknown = replace(lookup, size_bytes=None)

    def report(*transfers: Transfer) -> str:
        schedule = replace(split.predicted, transfers=transfers)
        candidates = (*others, replace(split, predicted=schedule))
        return render_markdown(replace(analysis, candidates=candidates))

    some = report(unknown, *rest)
    assert "3 copies, ≥ 6.40 MB<br>" in some
    assert "2 copies, 6.40 MB<br>" in some
    assert "1 copy, ?<br>" in report(unknown)


def test_long_lists_of_layers_are_cut_with_their_number(analysis: Analysis) -> None:
    layers = {f"block_{number}": "worker:0" for number in range(25)}
    single = replace(analysis.candidates[0], by_layer=layers)
    report = render_markdown(replace(analysis, candidates=(single,)))
    assert "block_19 and 5 more" in report
    assert "block_20" not in report


def test_without_layers_only_ops_are_counted(analysis: Analysis) -> None:
    single = replace(analysis.candidates[0], by_layer=None)
    report = render_markdown(replace(analysis, candidates=(single,)))
    assert "\n- worker:0, 7 ops\n" in report


def test_a_share_of_known_sizes_below_all_is_never_shown_as_all(analysis: Analysis) -> None:
    model = replace(analysis.model, edge_bytes_known_share=0.999)
    assert "(99 % of known size)" in render_markdown(replace(analysis, model=model))
