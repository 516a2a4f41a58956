from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sample_analysis

from placement_advisor.report.analysis.analysis_json import analysis_as_json
from placement_advisor.report.analysis.markdown import render_markdown
from placement_advisor.report.analysis.terminal import render_terminal

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis

GOLDEN = Path(__file__).parent / "golden"
OUTPUT = Path("advisor-out/deepconn")
ESCAPE = "\x1b"


def _plain(analysis: Analysis, width: int = 80) -> str:
    return render_terminal(analysis, width=width, color=False, output_dir=OUTPUT)


@pytest.mark.parametrize("name", ["sample", "unmeasured"])
def test_output_is_the_golden_one(name: str) -> None:
    expected = (GOLDEN / f"terminal_{name}.txt").read_text(encoding="utf-8")
    assert _plain(getattr(sample_analysis, name)()) == expected


def test_the_first_line_is_the_verdict_unbroken(analysis: Analysis) -> None:
    assert _plain(analysis, width=40).splitlines()[0] == analysis.recommendation.headline


def test_every_other_line_fits_the_width(analysis: Analysis) -> None:
    for width in (80, 100, 140):
        lines = _plain(analysis, width).splitlines()[1:]
        assert max(map(len, lines)) <= width


def test_long_failures_wrap_and_are_all_there(analysis: Analysis) -> None:
    words = [f"word{number}" for number in range(40)]
    broken = analysis.candidates[2]
    assert broken.failure is not None
    failed = replace(broken, failure=replace(broken.failure, message=" ".join(words)))
    text = _plain(replace(analysis, candidates=(*analysis.candidates[:2], failed)))
    assert all(word in text for word in words)
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_a_long_name_is_broken_at_a_hyphen_and_takes_no_room_from_figures(
    analysis: Analysis,
) -> None:
    long = replace(analysis.candidates[1], name="towers-forward-only")
    table = _plain(replace(analysis, candidates=(*analysis.candidates, long)))
    rows = [line.split()[0] for line in table.splitlines() if line.startswith(("towers-", "only"))]
    assert rows == ["towers-forward-", "only"]
    assert table.count("worker:1 8.20 MB") == 2


def test_nothing_is_called_measured_when_nothing_ran(unmeasured: Analysis) -> None:
    text = _plain(unmeasured)
    assert "predicted" in text
    assert "(simulated)" in text
    assert text.count("measured") == 1
    assert "Nothing was measured (--no-run: no step was executed)." in text
    assert "tensorboard" not in text


def test_colour_only_adds_escape_codes(analysis: Analysis) -> None:
    plain = _plain(analysis)
    colored = render_terminal(analysis, width=80, color=True, output_dir=OUTPUT)
    assert ESCAPE not in plain
    assert ESCAPE in colored
    assert analysis.recommendation.headline in colored.splitlines()[0]


def test_no_color_holds_whatever_the_environment_forces(
    analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert ESCAPE not in _plain(analysis)


def test_names_from_models_are_shown_not_interpreted(hostile: Analysis) -> None:
    text = _plain(hostile)
    assert text.count(sample_analysis.HOSTILE) >= 3
    assert ESCAPE not in text
    colored = render_terminal(hostile, width=80, color=True, output_dir=OUTPUT)
    assert f"{ESCAPE}[2J" not in colored


def test_a_candidate_that_does_not_apply_is_shown_as_such_in_its_row(
    not_applicable: Analysis,
) -> None:
    text = " ".join(_plain(not_applicable, width=120).split())
    assert "not-applicable –" in text


def test_peak_memory_of_every_device_is_shown(four_devices: Analysis) -> None:
    text = _plain(four_devices)
    assert all(f"worker:{number} 12.0 MB" in text for number in range(4))


def test_the_tensorboard_command_is_one_line_to_copy(analysis: Analysis) -> None:
    folder = Path("a folder") / ("deep" * 30)
    text = render_terminal(analysis, width=80, color=False, output_dir=folder)
    assert f"advisor view '{folder}'\n" in text


def _if_split(analysis: Analysis) -> Analysis:
    (finding,) = analysis.findings
    return replace(analysis, findings=(replace(finding, is_hypothetical=True, saving_ns=None),))


def test_findings_of_a_split_that_is_not_recommended_stand_apart_and_save_nothing(
    analysis: Analysis,
) -> None:
    text = _plain(_if_split(analysis), width=200)
    assert "Findings: none" in text
    assert (
        "If you split all the same, which is not recommended: PA201 step-waits-for-transfers "
        "(report.md)\n" in text
    )
    assert "saves:" not in text
    page = render_markdown(_if_split(analysis))
    assert "If you split all the same, which is not recommended:\n\n**PA201" in page
    assert "saves:" not in page
    assert analysis_as_json(_if_split(analysis))["findings"][0]["hypothetical"] is True
