from dataclasses import replace
from pathlib import Path

import pytest
import sample_analysis
import sample_break_even
from drawn_pictures import count, pixels, unreadable
from golden_files import golden_text
from report_samples import towers_graph
from sample_analysis import changed, published, ranged, unreliable, with_batch
from sample_break_even import CROSSING, FOUND, NOWHERE, THROUGHOUT, swept

from placement_advisor.cli.results import shown
from placement_advisor.files.output import OVERVIEW
from placement_advisor.measurement.measurement import Interval, Invariant, Violation
from placement_advisor.report.analysis_folder import write_reports
from placement_advisor.report.analysis_report import (
    break_even_lines,
    break_even_title,
    full_text,
    render_markdown,
)
from placement_advisor.report.document import escape
from placement_advisor.report.pictures.canvas import INK, SIGNS, save
from placement_advisor.report.pictures.layer_layout import layer_map
from placement_advisor.report.pictures.result_plots import draw_break_even
from placement_advisor.report.statements import input_line, scaling_lines
from placement_advisor.report.tensorboard.tab_data import Overview, Tab, read_overview
from placement_advisor.report.terminal import screen
from placement_advisor.results.analysis import scaling
from placement_advisor.tf.answers import LeftOut

ESCAPE = "\x1b"


@pytest.mark.parametrize("name", ["sample", "unmeasured", "elsewhere"])
def test_both_reports_are_the_golden_ones(name):
    analysis = getattr(sample_analysis, name)()
    assert full_text(analysis) == golden_text(f"full_{name}.txt")
    assert render_markdown(analysis) == golden_text(f"report_{name}.md")


def test_names_from_models_are_shown_not_interpreted():
    hostile = sample_analysis.hostile()
    text, page = full_text(hostile), render_markdown(hostile)
    assert text.count(sample_analysis.HOSTILE) >= 3
    assert ESCAPE not in text + page
    assert "<img" not in page
    assert r"&lt;img onerror=x&gt;\|\[bold\]" in page
    assert r"\`code\`" in page


def test_ranges_and_what_does_not_apply_stand_in_the_rows_of_candidates():
    # 1 / 0.8 to 1 / 0.5.
    assert full_text(ranged()).count("1.25–2.00") == 2
    assert render_markdown(ranged()).count("1.25–2.00") == 2
    # What was predicted after runs stands below what was predicted before.
    shown = full_text(sample_analysis.joined())
    assert 0 < shown.index("(1.25–2.00)") < shown.index("after 2 runs 1.56×")
    analysis = sample_analysis.not_applicable()
    text, page = " ".join(full_text(analysis).split()), render_markdown(analysis)
    assert "not applicable –" in text
    assert "| towers | – | not applicable | – | – |" in page
    assert all("towers: not applicable: the model has one tower." in told for told in (text, page))


def test_what_a_failure_says_in_full_is_in_a_file_that_all_reports_name(analysis, tmp_path):
    single, towers, broken = analysis.candidates
    failed = replace(broken, failure=replace(broken.failure, in_full="word\n" * 900))
    of = replace(analysis, candidates=(single, towers, failed, replace(broken, name="searched")))
    write_reports(of, tmp_path)
    told = "alternating: crashed: worker:1 was ended by SIGKILL in round 3"
    where = "(in full: failures/alternating.txt)"
    text = " ".join((tmp_path / "report.txt").read_text(encoding="utf-8").split())
    assert f"{told} {where}." in text
    assert " failures/ errors in full" in text
    assert f"- {told} {where}" in (tmp_path / "report.md").read_text(encoding="utf-8")
    failure = sample_analysis.as_json(of)["candidates"][2]["failure"]
    assert failure["in_full"] == "failures/alternating.txt"
    (file,) = (tmp_path / "failures").iterdir()
    assert (file.name, file.read_text()) == ("alternating.txt", "word\n" * 900 + "\n")
    # Of several that failed for the same reason it is said once.
    same = replace(analysis, candidates=(single, broken, replace(broken, name="pipeline")))
    assert "alternating and pipeline: crashed: worker:1 was ended" in full_text(same)
    words = " ".join(f"word{number}" for number in range(40))
    long = replace(broken, failure=replace(broken.failure, message=words))
    text = full_text(replace(analysis, candidates=(single, long)))
    assert words in " ".join(text.split())
    assert max(map(len, text.splitlines()[1:])) <= 80


def test_of_a_profile_that_breaks_a_law_nothing_is_shown():
    text, page = " ".join(full_text(unreliable()).split()), render_markdown(unreliable())
    assert "no profile to" in text
    # The simulated step has 1.50 ms.
    assert "1.56 ms exposed" in " ".join(full_text(sample_analysis.sample()).split())
    assert "1.56 ms exposed" not in text
    assert "no profile to rely on" in page
    assert "**towers (simulated), from row to column**" in page
    assert "| compute worker:1 | 24.0 ms | ? | – |" in page
    for told, mark in ((text, ""), (page, "**")):
        assert f"{mark}single: compute" in told
        assert f"{mark}towers: compute" not in told


def test_where_rules_found_nothing_by_a_profile_not_to_rely_on_every_report_says_so(analysis):
    plain = replace(analysis, findings=())
    single, *others = plain.candidates
    broken = Violation(law=Invariant.PARTS_ADD_UP, what="parts of its step do not add up to it")
    unsure = replace(plain, candidates=(replace(single, broken_laws=(broken,)), *others))
    for of, says in (
        (plain, "none: no rule fits this step"),
        (unsure, "none, but single has no profile to rely on. A rule that needs times of ops"),
        (replace(sample_analysis.unmeasured(), findings=()), "none: no rule fits this step"),
    ):
        on_screen = shown(screen(published(of), Path("out"), 300), color=False)
        for text in (full_text(of), render_markdown(of), on_screen):
            assert says in " ".join(text.split())
        assert Overview.of(of, layer_map(towers_graph())).no_findings.startswith(says)


def test_findings_of_a_split_that_is_not_recommended_stand_apart_and_save_nothing(analysis):
    finding = replace(analysis.findings[0], is_hypothetical=True, saving=None)
    of = replace(analysis, findings=(finding,))
    text, page = " ".join(full_text(of).split()), render_markdown(of)
    assert "Findings, most valuable first none: no rule" in text
    told = "Splits that are not recommended:"
    assert f"{told} PA201 step-waits-for-transfers: the gradient" in text
    assert f"{told}\n\n**PA201" in page
    # The verdict of this one is to split.
    assert "all the same" not in text + page
    assert "saves:" not in text + page
    assert sample_analysis.as_json(of)["findings"][0]["hypothetical"] is True
    assert published(of).shown_findings == ()


def test_lists_of_layers_are_cut_and_a_share_below_all_is_never_shown_as_all(analysis):
    layers = {f"block_{number}": "worker:0" for number in range(25)}
    many, none = (
        render_markdown(changed(analysis, 0, by_layer=by_layer)) for by_layer in (layers, None)
    )
    assert "block_19 and 5 more" in many
    assert "block_20" not in many
    assert "\n- worker:0, 7 ops\n" in none
    model = replace(analysis.model, edge_bytes_known_share=0.999)
    assert "(99 % of known size)" in render_markdown(replace(analysis, model=model))


def test_what_of_the_program_is_left_out_stands_in_one_line_of_every_report(analysis, tmp_path):
    left_out = LeftOut(jit_compile=True, steps_per_call=4, summaries=2)
    line = (
        "Left out of your program: jit_compile=True (XLA ignores devices within a step); "
        "steps_per_execution=4 (each step is a call); summaries"
    )
    of = replace(analysis, model=replace(analysis.model, left_out=left_out.told()))
    on_screen, without = (
        " ".join(shown(screen(published(each), Path("out"), 80), color=False).split())
        for each in (of, analysis)
    )
    assert line in on_screen
    assert "Left out" not in without
    assert f"{line}." in " ".join(full_text(of).split())
    assert f"\n- {escape(line)}.\n" in render_markdown(of)
    Tab(tmp_path, towers_graph()).show(of)
    assert line in [part.text for part in read_overview(tmp_path / OVERVIEW).verdict]
    assert sample_analysis.as_json(of)["model"]["left_out"] == list(left_out.told())


def test_strong_scaling_keeps_the_global_batch_and_weak_scaling_that_of_each_device():
    candidates = with_batch().candidates
    rows = scaling(candidates)
    assert [(row.name, row.candidate, row.devices, row.batch) for row in rows] == [
        ("single", "single", 1, 32),
        ("strong scaling", "batch", 2, 32),
        ("strong scaling", "mirrored", 2, 32),
        ("weak scaling", "batch", 2, 64),
        ("weak scaling", "mirrored", 2, 64),
    ]
    lines = scaling_lines(candidates)
    # 64 samples in 60 ms. One device with as many did not run, nor is it known by one with half.
    assert lines[3] == (
        "weak scaling (batch), 2 devices, 64 samples a step: 60.0 ms, 1,067 samples/s (simulated)"
    )
    # The verdict's own, a median of ratios within rounds.
    assert " samples/s, 1.69× within rounds (measured); " in lines[1]
    assert lines[1].endswith("(simulated)")
    assert "learning rate" in lines[-1]
    *others, batch, _ = candidates
    ratio = Interval(median=1.25, low=1.0, high=1.5)
    slower = replace(batch, comparison=replace(batch.comparison, ratio=ratio))
    assert ", 0.80× within rounds (measured)" in scaling_lines((*others, slower))[1]
    # Where the batch was not split there is nothing to say.
    assert scaling_lines(sample_analysis.sample().candidates) == []


@pytest.fixture
def full():
    return sample_break_even.with_break_even()


def test_the_lines_of_the_full_text_are_the_golden_ones(full):
    text = full_text(full)
    shown = text[text.index("Break-even") : text.index("\n\nCopies against compute")]
    assert shown + "\n" == golden_text("break_even.txt")


def by_axis(*sweeps):
    """Return a break-even of these alone."""
    none = dict.fromkeys(("bandwidth", "latency", "batch"))
    return replace(FOUND, **none | {sweep.axis.value: sweep for sweep in sweeps})


GOOD_ENOUGH = {"here": swept(50_000_000_000, 0.8)}
LOSES = {"outcome": NOWHERE.outcome, "wins_from": None, "changes": 0}
CROSSES = {
    "outcome": CROSSING.outcome,
    "wins_from": swept(500_000, 0.96),
    "loses_at": swept(504_000, 0.98),
}


@pytest.mark.parametrize(
    ("sweep", "changes", "says"),
    [
        # A figure that is good enough today makes a split win, and not only would.
        (CROSSING, GOOD_ENOUGH, "a split (towers) wins from 38.0 GB/s on;"),
        (NOWHERE, CROSSES, "a split (towers) wins up to 500 µs per copy;"),
        # What wins nowhere and throughout names the end of what was tried.
        (CROSSING, LOSES, "no split wins up to 150 GB/s (the most tried)"),
        (NOWHERE, {"outcome": THROUGHOUT.outcome}, "a split wins up to 240 ms (the most tried)"),
        (THROUGHOUT, {"changes": 0}, "a split wins from 1 sample (the least tried) on"),
    ],
)
def test_a_line_says_where_a_split_wins(sweep, changes, says):
    line, *_ = break_even_lines(by_axis(replace(sweep, **changes)))
    assert line.startswith(f"{sweep.axis.value}: {says}")
    assert "exceptions" not in line


def test_a_split_that_is_no_candidate_is_said_to_be_none():
    lines = [*break_even_lines(FOUND)]
    assert not any("none of the candidates" in line for line in lines)
    points = (*CROSSING.points[:-1], swept(150_000_000_000, 0.6, "searched for faster links"))
    elsewhere = replace(FOUND, bandwidth=replace(CROSSING, points=points))
    *same, last = break_even_lines(elsewhere)
    assert same == lines
    assert last.startswith("searched for faster links: none of the candidates, but a split that")


@pytest.mark.parametrize(
    ("ratio", "changes", "ends"),
    [
        (1.02, {"batch": None}, "would be 0.98× as fast as single: no link makes one win"),
        (
            0.91,  # The best here: 0.9.
            {"bandwidth": None, "latency": None},
            "1.10× as fast as single, less than here: ops that are ready earlier run in another "
            "order, which can take longer",
        ),
        (0.9, {"bandwidth": None, "latency": None}, "1.11× as fast as single"),
    ],
)
def test_copies_that_cost_nothing_are_said_to_help_or_not(ratio, changes, ends):
    free = replace(FOUND.free_copies, ratio=ratio)
    *_, line = break_even_lines(replace(FOUND, free_copies=free, **changes))
    assert line.endswith(ends)


def test_corrections_by_what_was_measured_are_said_in_title_and_line():
    found = replace(FOUND, corrections={"towers": 1.26, "alternating": 1.1})
    assert break_even_title(found) == (
        "Break-even (simulated, corrected): a split that leaves the batch whole wins above 1.03× "
        "over single"
    )
    *_, line = break_even_lines(found)
    told = "corrected: the simulated step of a split, times its measured ratio over"
    assert line.startswith(told)
    assert line.endswith("(towers 1.26)")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # as-is: 32 samples in 29.4 ms; single: 32 in 51.0 ms
        ({}, "12,800 samples/s alone; the step (as-is) takes 1,090 samples/s"),
        ({"as_is": None}, "; the step (single) takes 627 samples/s"),
        (
            {"model": replace(sample_analysis.sample().model, batch_size=None)},
            "input: a batch every 2.50 ms alone; the step (as-is) takes 29.4 ms",
        ),
    ],
)
def test_the_input_stands_beside_the_step_as_it_is_else_beside_single(full, changes, says):
    assert says in str(input_line(replace(full, **changes)))


def test_the_report_has_lines_picture_and_what_was_assumed(full):
    text = render_markdown(full)
    assert f"## {break_even_title(FOUND)}\n" in text
    assert all(line in text for line in break_even_lines(FOUND))
    assert "(break-even.png)" in text
    assert "Memory is not checked." in text


# Where winning begins lies between two points, and another split may be the best there.
BETWEEN = replace(CROSSING, wins_from=swept(500_000, 0.96, "searched-2"))


@pytest.mark.parametrize(
    "axes", [FOUND.sweeps(), *((each,) for each in (*FOUND.sweeps(), BETWEEN))]
)
def test_the_picture_has_a_sign_for_each_split(full, axes):
    figure = draw_break_even(full, by_axis(*axes))
    assert unreadable(figure) == []
    points = [(*sweep.points, *([sweep.wins_from] if sweep.wins_from else [])) for sweep in axes]
    splits = list(dict.fromkeys(point.best.split for each in points for point in each))
    drawn = {line.get_marker() for ax in figure.axes for line in ax.lines} - {"None", ""}
    assert drawn == {sign for sign, _ in SIGNS[: len(splits)]}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == splits


def test_steps_that_take_nothing_and_odd_names_do_not_warn(full, tmp_path):
    points = (swept(1, 0.0, "模型 $x$"), swept(64, 0.0, "模型 $x$"))
    nothing = replace(THROUGHOUT, here=points[0], points=points)
    save(draw_break_even(full, by_axis(nothing)), tmp_path / "picture.png")
    assert count(pixels(tmp_path / "picture.png"), INK) > 10
