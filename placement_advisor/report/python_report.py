"""An analysis as Python and notebooks see it: verdict, rows, pictures.

Left out: layers and what crosses between them, which ``report.html`` in the folder shows.
"""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

from placement_advisor.defaults import BASELINE
from placement_advisor.errors import AdvisorError
from placement_advisor.report import statements
from placement_advisor.report.document import NOTHING, Table, as_html
from placement_advisor.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from placement_advisor.analysis import analysis_result

_COLUMNS = ("candidate", "predicted", "measured", "speed-up", "")


class Report:
    """What an analysis found. ``analysis`` has all of it, ``folder`` the files that it wrote."""

    def __init__(self, analysis: analysis_result.Analysis, folder: Path) -> None:
        """Look at an analysis."""
        self.analysis = analysis
        self.folder = folder

    @property
    def verdict(self) -> analysis_result.AdviceVerdict:
        """The answer in a word: "stay-single", "split", "cannot-tell" or "cannot-fit"."""
        return self.analysis.verdict

    @property
    def answer(self) -> str:
        """The answer in a sentence, with its ground."""
        return self.analysis.recommendation.headline

    @property
    def findings(self) -> tuple[analysis_result.Finding, ...]:
        """What to act on, most valuable first."""
        return tuple(each for each in self.analysis.findings if not each.is_hypothetical)

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """A row for each candidate, of plain values, as `pandas.DataFrame` takes them.

        Times are in ns; what is not known is None. A speed-up is single over candidate, above 1 is
        faster: measured with its 95 % interval, else simulated, with what it is if costs are wrong.
        That of single itself is 1, by definition.
        """
        return [_row(self.analysis, candidate) for candidate in self.analysis.candidates]

    def plot_timeline(self, *names: str) -> Axes:
        """Draw one step over time, of these candidates or of single and the best others.

        Raises:
            AdvisorError: there is no such candidate.
        """
        from placement_advisor.report.pictures.canvas import shown_page
        from placement_advisor.report.pictures.timeline_plot import draw_timeline

        by_name = {candidate.name: candidate for candidate in self.analysis.candidates}
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise AdvisorError(f"no candidate {unknown[0]!r}; there are {', '.join(by_name)}")
        chosen = [by_name[name] for name in names] or statements.in_timeline(self.analysis)
        return _axes(draw_timeline(self.analysis, chosen, shown_page))[0]

    def plot_comparison(self) -> Axes:
        """Draw of what each candidate's step is made: compute, waits for copies, idle."""
        from placement_advisor.report.pictures.canvas import shown_page
        from placement_advisor.report.pictures.result_plots import draw_comparison

        return _axes(draw_comparison(self.analysis, shown_page))[0]

    def plot_break_even(self) -> list[Axes]:
        """Draw from which bandwidth, latency and batch on a split would win, a panel for each.

        Raises:
            AdvisorError: that was not looked for, or there is no split.
        """
        from placement_advisor.report.pictures.canvas import shown_page
        from placement_advisor.report.pictures.result_plots import draw_break_even

        if self.analysis.break_even is None:
            raise AdvisorError(
                "there is no break-even: no split was predicted, or the analysis was a quick one"
            )
        return _axes(draw_break_even(self.analysis, self.analysis.break_even, shown_page))

    def __repr__(self) -> str:
        """Return the answer in a few lines."""
        rows = [f"  {row['candidate']}: {_speedup_text(row)}" for row in self._best(3)]
        return "\n".join([self.answer, *rows, f"  files: {self.folder}"])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: answer, table, timeline."""
        table = Table(_COLUMNS, [_cells(row) for row in self.candidates])
        findings = "".join(
            f"<li>{escape(f'{found.code}: {found.finding}')}</li>" for found in self.findings
        )
        return (
            f"<p><b>{escape(self.answer)}</b></p>"
            f"{as_html(table)}"
            f"{f'<ul>{findings}</ul>' if findings else ''}"
            f'<img alt="one step over time" style="max-width: 100%" src="{self._timeline()}">'
            f"<p>{escape(str(self.folder))}</p>"
        )

    def _best(self, most: int) -> list[dict[str, Any]]:
        known = [row for row in self.candidates if row["speedup"] is not None]
        return sorted(known, key=lambda row: -row["speedup"])[:most]

    def _timeline(self) -> str:
        from placement_advisor.report.pictures.timeline_plot import draw_timeline

        picture = BytesIO()
        figure = draw_timeline(self.analysis, statements.in_timeline(self.analysis))
        figure.savefig(picture, format="png")
        return "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode()


def _axes(figure: Any) -> list[Axes]:
    return list(figure.axes)


def _row(
    analysis: analysis_result.Analysis, candidate: analysis_result.Candidate
) -> dict[str, Any]:
    predicted, timed, factor = (
        candidate.predicted,
        statements.timed_ns(candidate),
        statements.speedup(candidate),
    )
    step = predicted if timed is None else candidate.profile
    simulated = "baseline" if candidate.name == BASELINE else "simulated"
    best = factor.median if factor else statements.predicted_speedup(analysis, candidate)
    ends = factor or statements.predicted_range(candidate)
    memory = step.step_memory_bytes if step else {}
    return {
        "candidate": candidate.name,
        "family": candidate.family,
        "predicted_step_ns": predicted.step_ns if predicted else None,
        "measured_step_ns": timed,
        "speedup": best,
        "speedup_low": ends.low if ends else None,
        "speedup_high": ends.high if ends else None,
        "speedup_basis": ("measured" if factor else simulated) if best is not None else None,
        "verdict": str(candidate.comparison.verdict) if candidate.comparison else None,
        "exposed_ns": step.exposed_ns if step else None,
        "transfers": step.transfer_count if step else None,
        "transfer_bytes": step.transfer_bytes if step else None,
        "step_memory_bytes": max(memory.values(), default=None),
        "failure": statements.failure_kind_text(candidate.failure) if candidate.failure else None,
        "rationale": candidate.rationale,
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    steps = [row["predicted_step_ns"], row["measured_step_ns"]]
    return [
        row["candidate"],
        *(format_ns(step_ns) if step_ns is not None else NOTHING for step_ns in steps),
        _speedup_text(row),
        row["failure"] or row["rationale"],
    ]


def _speedup_text(row: Mapping[str, Any]) -> str:
    if row["speedup"] is None:
        return NOTHING
    low, high = row["speedup_low"], row["speedup_high"]
    ends = (
        "" if low is None else f" ({statements.times_text(low)} to {statements.times_text(high)})"
    )
    return f"{statements.times_text(row['speedup'])}{ends}, {row['speedup_basis']}"
