"""What of the user's program is left out stands in one line of every report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import sample_analysis
from simulated_steps import towers_graph

from placement_advisor.files.contract import plain
from placement_advisor.files.log_files import OVERVIEW
from placement_advisor.graph.graph_summary import summarize
from placement_advisor.report.analysis.analysis_report import full_text, render_markdown
from placement_advisor.report.analysis.screen import screen
from placement_advisor.report.document import escape
from placement_advisor.report.tensorboard.tab import Tab, read_overview
from placement_advisor.report.trace_summary import render_trace
from placement_advisor.results.contracts import load_schema
from placement_advisor.results.trace import Trace
from placement_advisor.tf.answers import LeftOut, Traced

if TYPE_CHECKING:
    from placement_advisor.analysis.analysis_result import Analysis

LEFT_OUT = LeftOut(jit_compile=True, steps_per_call=4, summaries=2)
LINE = (
    "Left out of your program: jit_compile=True (XLA ignores devices within a step); "
    "steps_per_execution=4 (each step is a call); summaries"
)


@pytest.fixture
def analysis() -> Analysis:
    found = sample_analysis.sample()
    return replace(found, model=replace(found.model, left_out=LEFT_OUT.told()))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_screen_says_it_and_nothing_where_nothing_is_left_out(analysis: Analysis) -> None:
    shown = [
        line.text
        for line in screen(
            sample_analysis.read_back(sample_analysis.as_json(analysis)), Path("out"), width=80
        )
    ]
    assert LINE in _in_one_line(" ".join(shown))
    plain = screen(sample_analysis.published(sample_analysis.sample()), Path("out"), width=80)
    assert not any("Left out" in line.text for line in plain)


def test_the_texts_say_it(analysis: Analysis) -> None:
    assert f"{LINE}." in _in_one_line(full_text(analysis))
    assert f"\n- {escape(LINE)}.\n" in render_markdown(analysis)


def test_the_tab_and_the_html_page_say_it(analysis: Analysis, tmp_path: Path) -> None:
    Tab(tmp_path, towers_graph()).show(analysis)
    assert LINE in [part.text for part in read_overview(tmp_path / OVERVIEW).verdict]


def test_programs_are_told_each(analysis: Analysis) -> None:
    content = sample_analysis.as_json(analysis)
    jsonschema.validate(content, load_schema("analysis"))
    assert content["model"]["left_out"] == list(LEFT_OUT.told())


def test_a_trace_says_it_as_text_and_to_programs() -> None:
    graph = towers_graph()
    traced = Traced(
        graph=graph,
        members={},
        name="m",
        mode="train",
        chosen="m",
        batch_size=None,
        tensorflow_version="2.21.0",
        left_out=LEFT_OUT,
    )
    where = {"model_path": "m.py", "graph_file": "m.graph.json.gz"}
    text = render_trace(traced, summarize(graph), **where)
    assert "\nleft out     jit_compile=True (XLA ignores devices within a step); steps" in text
    content = plain(Trace.of(traced, summarize(graph), **where))
    assert content["model"]["left_out"] == list(LEFT_OUT.told())
