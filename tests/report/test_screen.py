import re
from dataclasses import replace
from pathlib import Path

import pytest
import sample_analysis
from drawn_cases import cases
from golden_files import golden_text
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sample_analysis import CAPTURED, published

from placement_advisor.analysis.analysis_result import AdviceVerdict, NextRun
from placement_advisor.cli.results import shown
from placement_advisor.measurement.measurement import FailureKind
from placement_advisor.report.terminal import MOST_LINES, screen, shortened
from placement_advisor.results.analysis import Training, Trial
from placement_advisor.results.candidate import Failure, RatioInterval, Steps

FOLDER = Path("advisor-out/deepconn")
ESCAPE = "\x1b"
MS = 1_000_000
CODES = re.compile(r"\x1b\[[0-9;]*m")


def text(of, width=80, *, color=False):
    return shown(screen(of, FOLDER, width), color=color)


SAMPLE = published(sample_analysis.sample())


def ran(name, ratio, failure=None):
    """A candidate that ran, by its ratio to single's 10 ms."""
    towers = SAMPLE.candidates[1]
    step_ns = round(10 * MS * ratio)
    return replace(
        towers,
        name=name,
        predicted=None,
        measured=replace(
            towers.measured,
            step_ns=Steps(median=step_ns, ci95=(step_ns, step_ns), samples=(step_ns,)),
            ratio_to_single=RatioInterval(median=ratio, ci95=(ratio - 0.01, ratio + 0.01)),
            transfer_count=4,
            compute_ns={"worker:0": 5 * MS, "worker:1": MS},
            exposed_by_device_ns={"worker:0": MS, "worker:1": 2 * MS},
        ),
        failure=failure and Failure(kind=failure, message="x", in_full=None),
    )


def only_simulated(name):
    told = replace(SAMPLE.candidates[1].predicted, step_ns=10 * MS, ratio_to_single=None)
    return replace(ran(name, 1.0), predicted=told, measured=None)


def unverified(candidate):
    found = replace(candidate.measured.verification, unverified=("bias",))
    return replace(candidate, measured=replace(candidate.measured, verification=found))


def with_candidates(*candidates):
    return answering(replace(SAMPLE, candidates=candidates), candidate="towers")


def answering(of, **changes):
    return replace(of, recommendation=replace(of.recommendation, **changes))


def finding(number, **changes):
    told = {"code": f"PA{number}", "action": "do this " * 40}
    return replace(SAMPLE.findings[0], **told | changes)


def crowded(long):
    """An analysis in which everything that can be long is, of which nothing ran."""
    many = [unverified(ran(f"{long}{number}", 1 + number / 100)) for number in range(60)]
    failed = [ran(f"{long}f{number}", 2.0, FailureKind.CRASHED) for number in range(60)]
    predicted = [
        replace(each, predicted=only_simulated("x").predicted)
        for each in (*many, ran("single", 1.0), *failed)
    ]
    of = replace(
        SAMPLE,
        model=replace(SAMPLE.model, chosen=long * 9, captured=CAPTURED),
        testbed=replace(SAMPLE.testbed, description=long * 9, not_run=long * 9),
        candidates=(*predicted, only_simulated("x")),
        findings=tuple(map(finding, range(100, 120))),
        warnings=("so it is",) * 90,
    )
    said = dict.fromkeys(("answer", "caveat", "how"), long * 9)
    return answering(of, candidate=many[7].name, deciding=(long * 9,) * 30, **said)


CROWDED = crowded("long words of many a name ")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["sample", "unmeasured", "elsewhere"])
def test_the_screen_is_the_golden_one_and_colour_only_adds_codes(name, width):
    of = published(getattr(sample_analysis, name)())
    expected = golden_text(f"screen_{name}_{width}.txt")
    assert text(of, width) == expected
    colored = text(of, width, color=True)
    assert ESCAPE in colored
    assert CODES.sub("", colored) == expected


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("long", ["long words of many a name ", "oneword", "名前", "a\x1b[2Jb\n"])
def test_no_analysis_takes_more_lines_or_columns_than_a_screen_has(width, long):
    lines = text(crowded(long), width).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(cell_len, lines)) <= width
    assert not any(ESCAPE in line for line in lines)


def test_what_was_captured_is_said_first_and_what_is_cut_is_in_a_file_that_is_named():
    said = "captured model.fit (SplitRanker, ranker, batch 50) at here/train.py:14, at its 2nd step"
    of = replace(CROWDED, model=replace(CROWDED.model, chosen=said))
    first, second, *_ = text(of).splitlines()
    assert f"{first} {second}" == f"C{said[1:]}"
    lines = text(CROWDED).splitlines()
    # The ground, the answer, the caveat, three reasons, the failures.
    assert len([line for line in lines if line.endswith("…")]) >= 7
    assert "how: advisor-out/deepconn/how_to_split.py" in lines
    assert lines.count("  what to do: advisor show -v advisor-out/deepconn") == 2
    assert not any("do this" in line for line in lines)
    said = "It rests on 9 steps, 12 % off. " + "Of what those take, more is said elsewhere " * 9
    of = answering(SAMPLE, deciding=(said,) * 3)
    assert text(of).splitlines().count("- It rests on 9 steps, 12 % off. …") == 3


ACTIONS = ("take a batch of 205", "put layer tower_1/dense on worker:1", "jit_compile=True, then")


@given(
    words=st.lists(st.sampled_from(["5.85", "ms", "12", "%", "(0.81–1.08)", "a", "towers"])),
    action=st.lists(st.sampled_from(ACTIONS), min_size=1, max_size=12),
    width=st.integers(40, 120),
)
def test_no_number_is_cut_or_parted_from_its_unit_and_no_instruction_is_cut(words, action, width):
    said, to_do = "x " + " ".join(words * 9), ", ".join(action)
    found = replace(SAMPLE.findings[0], action=to_do)
    told = {"answer": said, "deciding": (said,) * 3, "caveat": said, "how": to_do}
    of = answering(replace(SAMPLE, findings=(found,) * 2), candidate="c", **told)
    shown_text, vocabulary = text(of, width), set(text(of, 9_999).split())
    for line in shown_text.splitlines():
        if line.endswith("…"):
            before = line.removesuffix("…").split()
            assert not any(letter.isdigit() for letter in "".join(before[-1:]))
            assert set(before) <= vocabulary
    joined = " ".join(shown_text.split())
    assert f"c: {to_do}" in joined or "how: advisor-out/deepconn/how_to_split.py" in joined
    assert joined.count(to_do) >= 2 or "what to do: advisor show -v advisor-out/deepconn" in joined


LONG_COMMAND = "advisor analyze 'my models/net.py' --devices 4 --batch-size 208" + " --steps 9" * 9
STAY = answering(SAMPLE, verdict=AdviceVerdict.STAY_SINGLE, how=None, caveat=None, next_run=None)
ROUNDS = NextRun(change="with --rounds 180", takes_ns=370_000_000_000)
TRIED = finding(302, command=LONG_COMMAND)


@pytest.mark.parametrize(
    ("of", "command"),
    [
        # On a line of its own, however long: a break would be typed with it.
        (replace(STAY, findings=(finding(201), TRIED, finding(305))), LONG_COMMAND),
        (replace(STAY, findings=(finding(201), finding(305), TRIED)), "advisor explain PA201"),
        (STAY, "advisor explain PA201"),
        (replace(STAY, findings=()), "advisor view advisor-out/deepconn"),
        (SAMPLE, "cat advisor-out/deepconn/how_to_split.py"),
        (published(sample_analysis.unmeasured()), "the same command without --no-run, about 2 min"),
        (answering(SAMPLE, next_run=ROUNDS), "the same command with --rounds 180, about 6 min"),
    ],
)
def test_what_to_do_next_is_one_command(of, command):
    assert f"Next: {command}" in text(of).splitlines()


def test_why_a_candidate_failed_is_a_sentence_under_the_table_and_the_rest_in_a_file():
    in_full = "failures/mirrored.txt"
    told = Failure(kind=FailureKind.CRASHED, message="it refuses", in_full=in_full)
    of = with_candidates(ran("single", 1.0), replace(ran("mirrored", 0.1), failure=told))
    lines = text(of).splitlines()
    at = lines.index("not measured: 1 (crashed: mirrored)")
    assert lines[at + 1 : at + 3] == ["mirrored: it refuses", f"  in full: {FOLDER}/{in_full}"]
    # What decides has said so already.
    said = answering(of, deciding=("mirrored: crashed: it refuses",))
    assert "mirrored: it refuses" not in text(said).splitlines()


def test_a_crowded_table_keeps_the_best_the_baseline_and_the_answer_and_counts_the_others():
    lines = text(crowded("c")).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("candidate"))
    end = next(i for i, line in enumerate(lines) if line.startswith("and "))
    rows = lines[start + 1 : end]
    assert {"single", "c0", "c7"} <= {row.split()[0] for row in rows}
    assert lines[end] == f"and {62 - len(rows)} more simulated"


def test_what_one_device_took_in_the_process_of_the_step_is_told_beside_what_is_simulated():
    of = with_candidates(
        replace(only_simulated("single"), measured=ran("single", 1.5).measured),
        only_simulated("towers"),
    )
    of = replace(of, testbed=replace(of.testbed, not_run="no candidate ran: Python"))
    lines = text(of).splitlines()
    assert any(re.match(r"candidate +simulated", line) for line in lines), lines
    assert any(re.match(r"single +10\.0 ms +baseline", line) for line in lines), lines
    assert "single: 15.0 ms, measured on one core in the process that made the step" in lines
    assert not any("ran" in line.split() for line in lines if line.startswith("and "))


def test_candidates_stand_best_first_and_what_has_no_figures_is_one_line():
    of = with_candidates(
        ran("slow", 1.5),
        ran("single", 1.0),
        ran("towers", 0.6),
        only_simulated("guess"),
        ran("broken", 0.1, FailureKind.WRONG_RESULT),
        replace(ran("odd", 1.0, FailureKind.NOT_APPLICABLE), measured=None),
    )
    shown_text = text(of)
    rows = re.findall(r"^(slow|single|towers|broken) ", shown_text, re.MULTILINE)
    assert rows[-3:] == ["towers", "single", "slow"]
    told = "not measured: 3 (1 only simulated; 1 not applicable; wrong result: broken)"
    assert told in shown_text.splitlines()
    single, towers, alternating = SAMPLE.candidates
    assert "not verified" not in text(SAMPLE)
    of = replace(SAMPLE, candidates=(single, unverified(towers), alternating))
    assert "not verified, so not recommended: towers\n" in text(of)
    shown_text = text(published(sample_analysis.unreliable()))
    (row,) = [line for line in shown_text.splitlines() if line.startswith("towers  ")]
    assert row.split()[-2:] == ["–", "–"]  # Neither copies nor waits.


@given(
    names=st.lists(st.text("ab_é名", min_size=1, max_size=60), min_size=1, max_size=6, unique=True),
    width=st.integers(8, 30),
)
@cases(200)
def test_names_are_shortened_to_the_width_with_a_sign(names, width):
    for name, short in zip(names, shortened(names, width), strict=True):
        assert cell_len(short) <= width
        assert short == name or "…" in short
    alike = [f"{'replica_' * 9}{number}{'_tail' * 9}" for number in range(5)]
    assert len(set(shortened(alike, 20))) == 5


@pytest.mark.parametrize(
    ("verdict", "names", "is_next"),
    [
        (AdviceVerdict.SPLIT, ("towers",), True),
        (AdviceVerdict.CANNOT_FIT, ("towers",), True),
        # The script has a split, and one device is faster.
        (AdviceVerdict.STAY_SINGLE, ("as-written", "towers"), True),
        (AdviceVerdict.STAY_SINGLE, ("towers",), False),
        (AdviceVerdict.CANNOT_TELL, ("as-written",), False),
    ],
)
def test_where_a_script_is_to_train_otherwise_the_command_for_it_comes_next(
    verdict, names, is_next
):
    candidates = tuple(ran(name, 1.0) for name in ("single", *names))
    of = replace(SAMPLE, model=replace(SAMPLE.model, captured=CAPTURED), candidates=candidates)
    found = answering(of, verdict=verdict, next_run=None)
    says = "Next: advisor run train.py\n  it compares with your own step on all"
    assert (says in text(found)) == is_next
    # The split that a script has is kept as it is if it is the best.
    kept = answering(found, verdict=AdviceVerdict.SPLIT, candidate="as-written")
    assert kept.trains_with is None


TRAINED = Training(
    candidate="towers",
    why_not=None,
    ready_s=1.5,
    placed_steps=4_000,
    own_steps=31,
    trial=Trial(
        steps=20, placed_step_ns=20 * MS, own_step_ns=30 * MS, speedup=1.5, ci95=(1.4, 1.6)
    ),
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {},
            "4,000 steps with towers at 20.0 ms, 31 with your own at 30.0 ms: 1.50× (1.40–1.60)",
        ),
        ({"trial": None}, "4,000 steps with towers, 31 with your own; no trial"),
        ({"why_not": "written for another graph"}, "as it is, written for another graph"),
    ],
)
def test_what_was_trained_stands_beside_what_was_measured(changes, says):
    training = replace(TRAINED, **changes)
    assert f"your training: {says}" in text(replace(SAMPLE, training=training), width=200)
