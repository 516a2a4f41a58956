"""A check as text: golden, and of any names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import sample_check
from hypothesis import given
from hypothesis import strategies as st
from sample_check import (
    AFTER,
    BEFORE,
    BUDGET,
    COPIES,
    DIFFERENCE,
    LEFT,
    check,
    cut,
    failed,
    passed,
)

from placement_advisor.check.problem import Code, Problem
from placement_advisor.report.check.check_text import check_as_text

GOLDEN = Path(__file__).parent / "golden"


def test_the_text_is_the_golden_one() -> None:
    expected = (GOLDEN / "check_sample.txt").read_text(encoding="utf-8")
    assert check_as_text(sample_check.sample()) == expected


def test_all_that_changed_is_the_golden_one() -> None:
    expected = (GOLDEN / "check_sample_verbose.txt").read_text(encoding="utf-8")
    assert check_as_text(sample_check.sample(), verbose=True) == expected


def test_models_that_passed_are_a_line_each() -> None:
    assert check_as_text(check(passed(), passed("models/a.py"))) == (
        "PASSED         models/deepconn.py  towers\n"
        "PASSED         models/a.py         towers\n"
        "\n"
        "2 models: 2 passed\n"
    )


def test_no_models_are_no_success() -> None:
    assert check_as_text(check()) == "no models to check\n"


def test_only_what_the_lock_file_holds_can_be_accepted() -> None:
    copies = check_as_text(check(failed(problems=(COPIES,))))
    assert copies.count("to accept:") == 1
    assert "to accept: advisor check --update, and commit placements.lock.json\n" in copies
    assert "to accept" not in check_as_text(check(failed(problems=(BUDGET, BUDGET))))
    both = check_as_text(check(failed(problems=(COPIES, BUDGET, BUDGET))))
    assert "placements.lock.json; it does not accept over-budget\n" in both


def test_a_failure_of_one_model_ends_with_the_command_that_explains_it() -> None:
    lines = check_as_text(check(failed())).splitlines()
    assert lines[-2:] == ["1 model: 1 failed", "Next: advisor explain PA101"]
    assert "Next" not in check_as_text(check(passed(), sample_check.could_not_run()))


def test_however_much_failed_it_is_a_screen_unless_all_is_asked_for() -> None:
    result = check(failed(problems=(LEFT, COPIES, BUDGET, *[COPIES] * 9)))
    lines = check_as_text(result).splitlines()
    assert len(lines) == 30
    assert lines[3] == f"  PA101: {LEFT.what}"
    shown, (cut, accept) = lines[3:-5], lines[-5:-3]
    whole = check_as_text(result, verbose=True).splitlines()[3:]
    assert whole[: len(shown)] == shown
    left = whole.index("") - len(shown)
    assert cut == f"  and {left} more lines: advisor check --verbose"
    assert accept.startswith("  to accept: advisor check --update")


def test_each_symptom_is_told_once() -> None:
    text = check_as_text(check(failed(problems=(LEFT,))))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert len(lines) == len(set(lines))
    assert text.count("more-copies") == text.count("slower-step") == 1


def test_a_model_that_is_not_locked_has_its_figures() -> None:
    problem = Problem(
        code=Code.NOT_LOCKED,
        what="the lock file does not have this model",
        action="advisor check --update, and commit what it writes",
    )
    new = failed(problems=(problem,), notes=(), before=None, difference=None)
    lines = check_as_text(check(new), verbose=True).splitlines()
    assert lines[6:9] == [
        "",
        "                                    locked      now  change",
        "  step (simulated)                       –  11.0 ms     new",
    ]


def test_times_of_other_versions_are_shown_but_not_compared() -> None:
    other = replace(AFTER, tensorflow="2.22.0")
    lines = check_as_text(check(failed(after=other)), verbose=True).splitlines()
    rows = {line[:19].strip(): line.split()[-5:] for line in lines}
    assert rows["step (simulated)"] == ["ms", "11.0", "ms", "not", "comparable"]
    assert rows["copies per step"] == ["4", "8", "+4", "(+100.0", "%)"]


def test_a_step_that_broke_a_budget_unchanged_needs_no_table() -> None:
    same = failed(problems=(BUDGET,), after=BEFORE, difference=None)
    assert "locked" not in check_as_text(check(same), verbose=True)


def test_devices_that_traded_places_are_compared_by_their_new_names() -> None:
    traded = replace(BEFORE, memory_bytes={"GPU:0": {"variables": 7}, "GPU:1": {"variables": 9}})
    swapped = replace(
        DIFFERENCE,
        before=replace(traded, memory_bytes={"GPU:1": {"variables": 7}, "GPU:0": {"variables": 9}}),
    )
    after = replace(AFTER, memory_bytes={"GPU:0": {"variables": 9}, "GPU:1": {"variables": 7}})
    result = check(failed(before=traded, after=after, difference=swapped))
    text = check_as_text(result, verbose=True)
    rows = [line.split()[-1] for line in text.splitlines() if "peak memory of" in line]
    assert rows == ["same", "same"]


@pytest.mark.parametrize(
    ("count", "last"), [(8, None), (9, "1 more tensor"), (100, "92 more tensors")]
)
def test_of_many_changes_the_first_are_shown(count: int, last: str | None) -> None:
    many = replace(DIFFERENCE, cuts_added=tuple(cut(f"t{i}", 8) for i in range(count)))
    text = check_as_text(check(failed(difference=many)), verbose=True)
    lines = [line.strip() for line in text.splitlines()]
    assert len([line for line in lines if line.startswith("+ tensor t")]) == 8
    assert [line for line in lines if line.startswith("+ and")] == (
        [f"+ and {last}"] if last else []
    )


def test_strict_says_why_inconclusive_fails() -> None:
    text = check_as_text(check(sample_check.inconclusive(), strict=True))
    assert text.endswith("\n1 model: 1 inconclusive (--strict: inconclusive fails)\n")


@given(sample_check.hostile_names, st.booleans())
def test_no_name_adds_a_line_or_drives_a_terminal_or_a_log(name: str, verbose: bool) -> None:
    lines = check_as_text(sample_check.hostile(name), verbose=verbose).splitlines()
    tame = check_as_text(sample_check.hostile("x"), verbose=verbose)
    assert len(lines) == len(tame.splitlines())
    for line in lines:
        assert line.isprintable()
        assert "##" not in line
        assert not line.lstrip().startswith("::")
