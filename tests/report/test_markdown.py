from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sample_analysis

from placement_advisor.report.analysis.analysis_report import render_markdown

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis
    from placement_advisor.simulator.events import Transfer

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["sample", "unmeasured", "elsewhere"])
def test_report_is_the_golden_one(name: str) -> None:
    expected = (GOLDEN / f"report_{name}.md").read_text(encoding="utf-8")
    assert render_markdown(getattr(sample_analysis, name)()) == expected


def test_names_from_models_are_shown_not_interpreted(hostile: Analysis) -> None:
    report = render_markdown(hostile)
    assert "<img" not in report
    assert r"&lt;img onerror=x&gt;\|\[bold\]" in report
    assert "\x1b" not in report
    assert r"\`code\`" in report


def test_every_row_of_a_table_has_as_many_cells_as_its_heading(hostile: Analysis) -> None:
    cells = None
    for line in render_markdown(hostile).splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        count = line.replace(r"\|", "").count("|")
        assert cells in (None, count), line
        cells = count


def test_nothing_is_called_measured_when_nothing_ran(unmeasured: Analysis) -> None:
    report = render_markdown(unmeasured)
    heading = next(line for line in report.splitlines() if line.startswith("| candidate"))
    assert "measured" not in heading
    assert "simulated" in heading
    assert "## Prediction against measurement" not in report
    assert "## Copies against compute, measured" not in report
    assert "tensorboard" not in report


def test_of_a_profile_that_breaks_a_law_nothing_is_shown() -> None:
    report = render_markdown(sample_analysis.unreliable())
    assert "no profile to rely on" in report
    assert "**towers (simulated), from row to column**" in report
    assert "**towers: compute" not in report
    assert "**single: compute" in report
    assert "| compute worker:1 | 24.0 ms | ? | – |" in report


def test_every_simulated_speed_up_has_its_range() -> None:
    assert render_markdown(sample_analysis.ranged()).count("1.25–2.00") == 2


def test_a_candidate_that_does_not_apply_is_told_in_the_words_of_the_other_reports(
    not_applicable: Analysis,
) -> None:
    report = render_markdown(not_applicable)
    assert "| towers | – | not applicable | – | – |" in report
    assert "\n- towers: not applicable: the model has one tower.\n" in report


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
