import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_answers import refusal
from command_runs import LAUNCH, run_here

from placement_advisor.analysis.findings.rules import RULES
from placement_advisor.check.problem_codes import EXPLANATIONS, ProblemCode, Status

ROOT = Path(__file__).parents[2]


def explain(*words):
    return run_here("explain", *words)


def test_a_finding_is_explained_as_it_is_written_and_an_unknown_code_is_an_error_with_the_list():
    ran = explain("PA101")
    assert ran.code == 0
    assert ran.out.startswith("# PA101 backward-on-default-device\n")
    assert "tf.gradients" in ran.out
    assert "\x1b" not in ran.out
    error = refusal(explain("PA1"))
    assert "no finding and no problem of a check is called 'PA1'; there are PA101, PA102" in error
    assert error.count("PA101") == 1
    assert "scope-changed" in error
    assert "advisor: hint: `advisor explain` lists them" in error


@pytest.mark.parametrize("code", [*EXPLANATIONS, "SLOWER-STEP"])
def test_every_code_of_a_check_says_what_it_means_when_it_is_found_and_what_to_do(code):
    ran = explain(code)
    assert ran.code == 0
    assert ran.out.startswith(f"# {code if code.startswith('PA') else code.lower()}")
    assert "## When it is found\n\n" in ran.out
    assert "## What to do\n\n" in ran.out


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_finding_goes_by_its_name_as_by_its_code(rule):
    told = explain(rule.code).out
    assert told.startswith(f"# {rule.code} {rule.name}\n")
    assert explain(rule.code.lower()).out == told
    assert explain(rule.name.upper()).out == explain(rule.name).out
    # A problem of a check that is called the same stands before it.
    assert explain(rule.name).out.endswith(told)
    assert (explain(rule.name).out == told) is (rule.name not in EXPLANATIONS)


def test_codes_are_listed_explained_and_in_the_page_on_ci():
    ran = explain()
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[:2] == ["Findings of advisor analyze:", "  PA101  backward-on-default-device"]
    codes = [line.split()[0] for line in lines if line.startswith("  ")]
    assert codes == [*(rule.code for rule in RULES), *(c for c in EXPLANATIONS if c != "PA101")]
    (slower,) = (line for line in lines if "slower-step" in line)
    assert slower.split(maxsplit=1)[1] == "The simulated step takes longer"
    assert list(EXPLANATIONS) == [*ProblemCode, Status.COULD_NOT_RUN, Status.INCONCLUSIVE]
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    table = page[page.index("## What fails") : page.index("## The same answer everywhere")]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == set(ProblemCode)


def test_a_terminal_gets_the_page_laid_out():
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        command = [sys.executable, "-c", LAUNCH, "explain", "PA203"]
        subprocess.run(command, stdout=theirs, check=True)
        os.close(theirs)
        text = terminal.read(1_000).decode()
    assert "PA203 idle-device" in text
    assert "# PA203" not in text
